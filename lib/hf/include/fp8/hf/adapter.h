/// A folder with a LoRA adapter as PEFT writes it: adapter_config.json and adapter_model.safetensors. Read-only and
/// untrusted. The linears that have an adapter are those that the settings select; kinds of adapters that compute
/// something else, and settings that are not known, are refused by name. Source: PEFT 0.21, tuners/lora/config.py and
/// utils/save_and_load.py.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fp8/hf/config.h"
#include "fp8/hf/safetensors.h"

namespace fp8::hf {

/// Names of the files of a folder.
inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterTensors = "adapter_model.safetensors";  ///< the tensors
/// What PEFT puts before the names of a model's modules.
inline constexpr std::string_view kAdapterPrefix = "base_model.model.";

/// The settings of `config.lora` as PEFT writes them. The targets are the last parts of their names where an adapter is
/// on each linear that ends so, else full names; the name of the base model is the one that `config` records, or null.
json::Value adapter_config(const ModelConfig& config);

/// An open folder. Reading is const and thread-safe.
class AdapterFolder {
 public:
  /// Opens the folder of an adapter for `model`. Throws Error `path: reason` if the settings or the tensors are not
  /// those of a LoRA adapter for linears of the model's layers: for each that `target_modules` and its companions
  /// select lora_A [r, in] and lora_B [out, r], and nothing else.
  AdapterFolder(const std::string& path, const ModelConfig& model);

  /// Path as given.
  const std::string& path() const { return path_; }
  /// Rank, alpha, dropout, and targets in the order of computation.
  const LoraConfig& lora() const { return lora_; }
  /// Rows [first, first + count) of a tensor, `MODULE.lora_A.weight` or `MODULE.lora_B.weight` of a target, as floats,
  /// exact; out has their exact size. Throws Error `path: NAME: reason` if one of them is not finite.
  void read_rows(const std::string& name, std::int64_t first, std::int64_t count, std::span<float> out) const;
  /// Digest of the settings and of all values, in hexadecimal. Reads the file.
  std::string digest() const;

 private:
  void check_tensors(const ModelConfig& model) const;
  const TensorInfo& at(const std::string& name) const;
  std::string path_;
  LoraConfig lora_;
  SafetensorsFile file_;
};

}  // namespace fp8::hf
