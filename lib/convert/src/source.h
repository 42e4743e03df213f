/// Source of a conversion: one interface to a Hugging Face folder or a checkpoint. Private to this crate.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/convert/cast_matrix.h"
#include "fp8/dtype/dtype.h"
#include "fp8/hf/config.h"
#include "fp8/hf/folder.h"
#include "fp8/hf/quantization.h"

namespace fp8::convert {

/// A weight of a source.
struct SourceTensor {
  std::string name;                    ///< Hugging Face name
  std::vector<std::int64_t> shape;     ///< extents
  std::optional<dtype::DType> format;  ///< format, if it is supported
  std::string format_name;             ///< name in the source
  std::vector<std::int64_t>
      scales_shape{};  ///< shape of the scales in a checkpoint, if the tensor has codes with scales; else empty
  /// Format of the scales in a checkpoint: f32, e8m0 of blocks of 32, e4m3 of FP4 codes.
  dtype::DType scales_type = dtype::DType::f32;
  const hf::Folder::Entry* entry = nullptr;  ///< tensor of a folder; null in a checkpoint

  /// Whether it is codes with scales.
  bool codes() const { return !scales_shape.empty(); }
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
  /// Number of a folder's tensors that are ignored because only a server uses them: scales of activations.
  std::size_t activation_scales() const { return folder_tensors_.activation_scales; }
  /// Texts of the other files that are kept with a folder's model; empty for a checkpoint.
  std::map<std::string, std::string> folder_texts() const;

  /// The factors of a weight that is codes, in row-major order. Throws Error naming one that dtype::bad_scale() does.
  std::vector<float> scales(const SourceTensor& tensor) const;
  /// The scales of a weight that is codes, as a checkpoint stores them. Throws Error that names the weight if FP4 codes
  /// of a folder have scales that differ among the rows of a block of 16 x 16.
  StoredScales stored_scales(const SourceTensor& tensor) const;

 private:
  friend class RowReader;
  void list_checkpoint();
  void list_folder();
  StoredScales scales_as_stored(const SourceTensor& tensor) const;
  std::string path_;
  std::optional<hf::Folder> folder_;
  hf::FolderTensors folder_tensors_;
  std::optional<ckpt::Checkpoint> checkpoint_;
  hf::ModelConfig config_;
  std::vector<SourceTensor> tensors_;
};

/// Reads the rows of one weight in one format: exact where it is stored in that format, else through f32, codes
/// multiplied by their scales.
class RowReader {
 public:
  /// `type` is f32, bf16, or the stored format. Source and weight must outlive the reader. Reads the scales of codes
  /// unless `type` is e4m3.
  RowReader(const Source& source, const SourceTensor& tensor, dtype::DType type);
  /// Rows [begin, end) into `out` of exactly their bytes. Throws Error naming a row that a scale makes infinite or NaN.
  void read(std::int64_t begin, std::int64_t end, std::span<std::byte> out);

 private:
  void read_stored(std::int64_t begin, std::int64_t end, std::span<std::byte> out) const;
  const Source& source_;
  const SourceTensor& tensor_;
  dtype::DType type_;
  std::vector<std::byte> codes_;
  std::vector<float> scales_, values_;
  std::optional<FactorGrid> grid_;  // layout of scales_
};

}  // namespace fp8::convert
