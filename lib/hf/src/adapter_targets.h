/// The modules that get an adapter from PEFT, by adapter_config.json. Private to this crate.
#pragma once

#include <string>
#include <vector>

#include "fp8/hf/config.h"
#include "keys.h"

namespace fp8::hf {

/// The modules of linear_modules() that `target_modules`, `exclude_modules`, `layers_to_transform` and `layers_pattern`
/// select, in the order of computation. Throws Error `path: reason` for values of another type, for combinations that
/// PEFT refuses, for an expression that token::full_matches() does not evaluate, for a `layers_pattern` that is no
/// plain name, and if the LM head, the embedding or no linear is selected. Source: PEFT 0.21,
/// check_target_module_exists in tuners/tuners_utils.py.
std::vector<std::string> target_modules(const Keys& keys, const ModelConfig& model);

}  // namespace fp8::hf
