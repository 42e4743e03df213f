/// Named tensors to compare: those of a safetensors file, of a folder of them, or the weights of a checkpoint, under
/// Hugging Face's names. Names of torchtitan can be translated. Only lists and reads; the comparison is fit.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp8::convert {

/// Whose names the tensors may have.
enum class TensorNames : std::uint8_t {
  huggingface,  ///< those of Hugging Face and PEFT
  torchtitan,   ///< those of torchtitan too, whose Llama models have wq and wk in the interleaved rotary order
};

/// One tensor of a set.
struct NamedTensor {
  std::string name;                 ///< as in the file, or translated
  std::string key;                  ///< name under which two sets are matched: without what PEFT and wrappers add
  std::string dtype;                ///< format in the source
  std::vector<std::int64_t> shape;  ///< extents; empty for a scalar
  bool interleaved = false;         ///< rows of each head are pairs of neighbours; Hugging Face has two halves
  std::size_t file = 0;             ///< number of its file
  std::string stored;               ///< name in the file
  std::int64_t first_element = 0;   ///< first element in the stored tensor, if it is one expert of several

  /// First extent; 1 for a scalar.
  std::int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
  /// Elements of a row.
  std::int64_t columns() const;
};

/// Reads rows [first, first + count) of one tensor as doubles, exact but for 64-bit integers.
using RowsReader = std::function<void(std::int64_t first, std::int64_t count, std::span<double> out)>;

/// An open set of tensors. Movable.
class TensorSet {
 public:
  /// Opens a safetensors file, a folder with model.safetensors.index.json or any *.safetensors, or a checkpoint
  /// argument. Throws Error `path: reason`, also if two tensors have the same key.
  TensorSet(const std::string& path, TensorNames names);
  ~TensorSet();
  TensorSet(TensorSet&&) noexcept;
  TensorSet& operator=(TensorSet&&) noexcept;

  /// Whether `path` is a safetensors file or a folder of them, not a checkpoint.
  static bool is_safetensors(const std::string& path);

  /// Path as given.
  const std::string& path() const;
  /// All tensors, sorted by key.
  const std::vector<NamedTensor>& tensors() const;
  /// The tensor with that key, or null.
  const NamedTensor* find(std::string_view key) const;
  /// Width of a head, from the model's configuration; nothing without one.
  std::optional<std::int64_t> head_dim() const;
  /// A reader of the rows as stored, in the order of the file. Codes of a checkpoint are multiplied by their scales;
  /// those of a safetensors file are not. The set must outlive the reader.
  RowsReader reader(const NamedTensor& tensor) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp8::convert
