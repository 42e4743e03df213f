/// `quantization_config` of config.json. Private to this crate.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::hf {

/// The elements that share a scale.
enum class ScaleLayout : std::uint8_t {
  tensor,  ///< all
  row,     ///< one row
  block,   ///< kQuantizationBlock x kQuantizationBlock
  group,   ///< kFp4Group of a row, under one scale of the tensor; the codes are packed E2M1
};

/// A list of modules that are not quantized.
struct ModuleList {
  std::string key;                   ///< key of the list in config.json
  std::vector<std::string> entries;  ///< names; with "re:" in front, regular expressions
};

/// A supported quantization of weights in E4M3, or in E2M1 if the layout is group.
struct QuantizationConfig {
  ScaleLayout layout = ScaleLayout::block;  ///< layout of the scales
  std::string suffix;                ///< ending that replaces the ending of a weight's name in the name of its scales
  std::vector<ModuleList> excluded;  ///< each of these lists says which modules are not quantized
};

/// Reads and checks the object. Throws Error `what: quantization_config: reason` for a method, format, block size or
/// activation scheme that is not supported.
QuantizationConfig parse_quantization_config(const json::Value& value, const std::string& what);

/// Whether an entry of the list is the module, one that it lies in, or the end of its name; a regular expression, which
/// is not evaluated, is none of them.
bool names_module(const ModuleList& list, std::string_view module);

/// Whether the list has a regular expression, so that it may exclude any module.
bool has_expression(const ModuleList& list);

}  // namespace fp8::hf
