/// The parts of the reader of Axolotl. Private to this crate.
#pragma once

#include <span>

#include "mapping.h"

namespace fp8::foreign {

/// Whether the configuration trains adapters.
bool has_adapter(const Mapping& m);

/// The data sets, their templates and their masks.
void read_axolotl_data(Mapping& m);
/// The adapters and what they stand on.
void read_axolotl_adapter(Mapping& m);
/// The plugins.
void read_axolotl_plugins(Mapping& m);
/// Keys whose answer depends on no other key.
std::span<const KeyRow> axolotl_rows();

}  // namespace fp8::foreign
