/// The key `lora` of a configuration. Private to this crate.
#pragma once

#include <string>

#include "fp8/hf/config.h"
#include "keys.h"

namespace fp8::hf {

/// Settings that config.json's `lora` and PEFT's adapter_config.json have in common; the targets are not among them.
/// `lora_alpha` and `r` are required.
LoraConfig read_lora_numbers(const Keys& keys);

/// Reads the key of a checkpoint's configuration. Throws Error `name: reason` as check_lora() does.
LoraConfig parse_lora(const json::Value& value, const ModelConfig& config, const std::string& name);

/// The value of the key.
json::Value lora_json(const LoraConfig& lora);

}  // namespace fp8::hf
