/// The parts of the reader of NeMo AutoModel. Private to this crate.
#pragma once

#include <span>

#include "mapping.h"

namespace fp8::foreign {

/// Whether the file gives the key a value; AutoModel reads "none" as null too.
bool is_given(const Mapping& m, std::string_view path);

/// Whether a Python name, as "torch.optim.Adam", ends with `name` after a dot or is `name`.
bool is_python_name(std::string_view target, std::string_view name);

/// The model, its kernels and its types, and the fp8 block.
void read_automodel_model(Mapping& m);
/// Rows of the keys of a model that depend on no other key.
std::span<const KeyRow> automodel_model_rows();
/// The adapters.
void read_automodel_peft(Mapping& m);
/// Data sets, their loaders and packing.
void read_automodel_data(Mapping& m);
/// Rows of the keys of data that depend on no other key.
std::span<const KeyRow> automodel_data_rows();

}  // namespace fp8::foreign
