/// A Hugging Face model folder: its configuration and the tensors of all its safetensors shards as one list. Read-only
/// and untrusted: an index may list only bare file names of the folder and must match the shards. The required tensors
/// of a model are checked in model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/hf/config.h"
#include "fp8/hf/safetensors.h"

namespace fp8::hf {

/// Bytes of the files beside a tokenizer.json that describe its use, by name, as far as `folder` contains them:
/// tokenizer_config.json, special_tokens_map.json, added_tokens.json, chat_template.jinja and chat_template.json (at
/// most 16 MiB each).
std::map<std::string, std::string> tokenizer_texts(const std::string& folder);

/// Opens the files in `folder` that the index at `index_path` names, sorted by name. Throws Error `path: reason` unless
/// they hold exactly the tensors that it maps to each.
std::vector<SafetensorsFile> open_shards(const std::string& folder, const std::string& index_path);

/// An open folder. Reading is const and thread-safe.
class Folder {
 public:
  /// Opens config.json and model.safetensors, or the shards listed in model.safetensors.index.json. Throws Error `path:
  /// reason`, also for a folder quantized by ModelOpt, which has a hf_quant_config.json.
  explicit Folder(const std::string& path);

  /// Whether `path` is a directory that contains a config.json.
  static bool looks_like(const std::string& path);

  /// Path as given.
  const std::string& path() const { return path_; }
  /// The model's configuration, without `quantization_config`.
  const ModelConfig& config() const { return config_; }
  /// `quantization_config` of config.json; null without one. tensors_of() in quantization.h interprets it.
  const json::Value& quantization_config() const { return quantization_; }
  /// Bytes of tokenizer.json, if the folder contains one (at most 256 MiB).
  std::optional<std::string> tokenizer() const;
  /// Bytes of the files that a use of the model needs besides weights, configuration and tokenizer, by name, as far as
  /// the folder contains them: tokenizer_texts() and generation_config.json (at most 16 MiB each).
  std::map<std::string, std::string> texts() const;

  /// A tensor and the shard that holds it.
  struct Entry {
    const TensorInfo* info;        ///< name, dtype, shape
    const SafetensorsFile* shard;  ///< the file that holds it
  };
  /// All tensors, sorted by name; experts that are one tensor of a layer are the matrices of single experts.
  const std::vector<Entry>& tensors() const { return tensors_; }
  /// The tensor called `name`, or null.
  const Entry* find(std::string_view name) const;

  /// Bytes of rows [first, first + count) of the first dimension as stored (a scalar has one row); out.size() must be
  /// their exact size.
  void read_rows(const Entry& tensor, std::int64_t first, std::int64_t count, std::span<std::byte> out) const;
  /// Reads rows like read_rows(), as floats, exactly. Throws Error `file: tensor ...` for formats other than F32, BF16,
  /// F16.
  void read_rows_f32(const Entry& tensor, std::int64_t first, std::int64_t count, std::span<float> out) const;

 private:
  void add(const TensorInfo& tensor, const SafetensorsFile& shard);
  std::string path_;
  ModelConfig config_;
  json::Value quantization_;
  std::vector<SafetensorsFile> shards_;
  std::deque<TensorInfo> parts_;  // of fused tensors; entries of tensors_ point here
  std::vector<Entry> tensors_;
};

}  // namespace fp8::hf
