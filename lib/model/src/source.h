/// Source of a conversion: one interface to a Hugging Face folder or a checkpoint. Private to this crate.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/dtype/dtype.h"
#include "fp8/hf/config.h"
#include "fp8/hf/folder.h"

namespace fp8::model {

/// A weight of a source.
struct SourceTensor {
  std::string name;                    ///< Hugging Face name
  std::vector<std::int64_t> shape;     ///< extents
  std::optional<dtype::DType> format;  ///< nothing if the format is not supported
  std::string format_name;             ///< name in the source
};

/// An open source. Errors name the file.
class Source {
 public:
  /// Opens a folder or a checkpoint; throws Error that identifies `path` otherwise.
  explicit Source(const std::string& path);

  /// Path as given.
  const std::string& path() const { return path_; }
  /// The model's configuration.
  const hf::ModelConfig& config() const { return config_; }
  /// All weights, sorted by name.
  const std::vector<SourceTensor>& tensors() const { return tensors_; }
  /// The weight of that name, or null.
  const SourceTensor* find(std::string_view name) const;
  /// The checkpoint, or null for a folder.
  const ckpt::Checkpoint* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }
  /// Text of a folder's tokenizer.json, if it has one.
  std::optional<std::string> folder_tokenizer() const;
  /// Texts of the other files that are kept with a folder's model; empty for a checkpoint.
  std::map<std::string, std::string> folder_texts() const;

  /// Rows [begin, end) of a weight, converted to `type` (f32 or bf16; exact where the weight is already `type`), into
  /// `out` of exactly their bytes. `scratch` is reused between calls.
  void read_rows(const SourceTensor& tensor, std::int64_t begin, std::int64_t end, dtype::DType type,
                 std::span<std::byte> out, std::vector<float>& scratch) const;

 private:
  void list_checkpoint();
  void list_folder();
  std::string path_;
  std::optional<hf::Folder> folder_;
  std::optional<ckpt::Checkpoint> checkpoint_;
  hf::ModelConfig config_;
  std::vector<SourceTensor> tensors_;
};

}  // namespace fp8::model
