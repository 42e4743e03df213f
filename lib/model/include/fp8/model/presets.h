/// Model presets: configurations in Hugging Face's spelling that come with the suite, in share/presets. Data files, so
/// that a user's own config.json is used in just the same way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::model {

/// Folder of the files that come with the suite: $FP8_SHARE, else share/fp8 beside the folder of the running program,
/// else share of the source tree that it was built in. Throws Error that says where it looked.
std::string share_folder();

/// Names of all presets, sorted.
std::vector<std::string> preset_names();

/// The object of a configuration file (where `preset_or_path` has a slash, ends in .json or is a file) or of a preset.
/// Throws Error that lists the presets for an unknown name. The configuration itself is not checked: see
/// hf::parse_config.
json::Value read_model_config(const std::string& preset_or_path);

/// Sets `key=value` in a configuration. The value is JSON, or text where it does not parse as JSON. The key is one the
/// configuration has, or one that hf::parse_config knows; a dot reaches into an object (rope_parameters.rope_theta).
/// Throws Error `--set ...` for any other.
void set_config_key(json::Value& config, std::string_view assignment);

}  // namespace fp8::model
