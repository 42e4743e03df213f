/// Reader of untrusted safetensors files and streaming writer. A reader keeps only the header in memory: data is read
/// on demand with pread, never mapped, so that a file truncated during use is an error and not a signal. Independent of
/// models. Source: the safetensors format description (huggingface/safetensors, README).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/file.h"
#include "fp8/dtype/dtype.h"

namespace fp8::hf {

/// One entry of a header.
struct TensorInfo {
  std::string name;                    ///< full name
  std::string dtype;                   ///< name of the dtype in the file: F32, BF16, F8_E4M3, I64, ...
  std::optional<dtype::DType> format;  ///< the suite's format, if supported
  std::size_t element_size = 0;        ///< bytes of one element
  std::vector<std::int64_t> shape;     ///< extents; empty for a scalar
  std::uint64_t begin = 0;             ///< first byte, from the start of the data
  std::uint64_t end = 0;               ///< one past the last byte

  /// Number of elements.
  std::int64_t elements() const;
};

/// Name of a format in a safetensors header (F32, BF16, ...).
std::string_view safetensors_dtype(dtype::DType type);

/// An open file with a checked header. Movable; reading is const and thread-safe.
class SafetensorsFile {
 public:
  /// Opens and checks a file. Throws Error `path: rule` for a file that violates the format.
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  /// Path as given.
  const std::string& path() const;
  /// The texts of `__metadata__`, by key; empty without it.
  const std::map<std::string, std::string>& metadata() const;
  /// Entries in the order of their data.
  const std::vector<TensorInfo>& tensors() const;
  /// The entry called `name`, or null.
  const TensorInfo* find(std::string_view name) const;
  /// Reads out.size() bytes of a tensor's data from its byte `offset` on. Throws Error if the range exceeds the tensor
  /// or cannot be read.
  void read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const;
  /// Bytes of rows [first, first + count) of the first dimension as stored (a scalar has one row); out.size() must be
  /// their exact size.
  void read_rows(const TensorInfo& tensor, std::int64_t first, std::int64_t count, std::span<std::byte> out) const;
  /// Reads rows like read_rows(), as floats, exactly. Throws Error `path: tensor ...` for formats other than F32, BF16,
  /// F16.
  void read_rows_f32(const TensorInfo& tensor, std::int64_t first, std::int64_t count, std::span<float> out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A tensor to write.
struct TensorSpec {
  std::string name;                 ///< full name, unique
  dtype::DType dtype;               ///< element format
  std::vector<std::int64_t> shape;  ///< extents
};

/// Writes one file: header first, then the tensors in any order. In the file they stand by descending element size,
/// then by name. The file is written directly at the given path; the caller commits it under its final name.
class SafetensorsWriter {
 public:
  /// Creates `path` (which must not exist) and writes the header. Throws Error for a duplicate name or when writing
  /// fails.
  SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors);
  /// The same in an empty file that is open for writing, with these texts in `__metadata__` beside "format".
  SafetensorsWriter(File file, std::vector<TensorSpec> tensors, const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;

  /// Starts a tensor, whose data follow. Throws Error for a name that the header lacks, a tensor that was written
  /// before, and if data of the previous tensor are missing.
  void begin(std::string_view name);
  /// The next data bytes of the tensor. Throws Error if it has fewer.
  void write(std::span<const std::byte> bytes);
  /// Syncs the file and closes it. Throws Error naming a tensor whose data are missing.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp8::hf
