/// Model presets: configurations with Hugging Face keys, part of the suite, in share/presets. They are data files, so
/// that a user's own config.json is used in the same way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::model {

/// Names of all presets, sorted.
std::vector<std::string> preset_names();

/// The path of a configuration file or of a preset's, see share_file().
std::string model_config_file(const std::string& preset_or_path);

/// The JSON object of model_config_file(). The configuration itself is not checked: see hf::parse_config.
json::Value read_model_config(const std::string& preset_or_path);

/// Sets `key=value` in a configuration. The value is JSON, or a string if it does not parse as JSON. The key must exist
/// in the configuration or be one that hf::parse_config reads; a dot selects a key of an object
/// (rope_parameters.rope_theta). Throws Error for any other.
void set_config_key(json::Value& config, std::string_view assignment);

}  // namespace fp8::model
