/// Named tensors to compare: those of a safetensors file, of a folder of them, or the weights of a checkpoint, under
/// Hugging Face's names. Names of torchtitan and of Megatron-LM can be translated. Only lists and reads; the comparison
/// is fit.h.
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
  huggingface,  ///< names of Hugging Face and PEFT
  torchtitan,   ///< also names of torchtitan, whose Llama models have wq and wk in the interleaved rotary order
  megatron,     ///< also names of Megatron-LM, which fuses q, k and v, and gate and up
};

/// Heads of attention. Key `attention_heads` of the metadata of a safetensors file, under these names.
struct Heads {
  std::int64_t query = 0;      ///< `num_attention_heads`
  std::int64_t key_value = 0;  ///< `num_key_value_heads`; divides `query`
  std::int64_t dim = 0;        ///< `head_dim`: width of a head

  /// Rows of q, k and v together.
  std::int64_t rows() const { return (query + 2 * key_value) * dim; }
};

/// Where the rows of a part of a fused tensor are: `run` rows from `offset` on, the next ones `stride` rows later.
struct Runs {
  std::int64_t run = 0;     ///< rows in one piece; 0: the tensor is not a part
  std::int64_t stride = 0;  ///< from one piece to the next
  std::int64_t offset = 0;  ///< first row
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
  bool padded = false;              ///< rows of zeros may follow those of the vocabulary
  Runs runs{};                      ///< rows in the stored tensor, if it is a part of a fused one
  std::string fused{};              ///< pattern of the names of q, k and v, which it is, until split_fused()

  /// First extent; 1 for a scalar.
  std::int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
  /// Elements of a row.
  std::int64_t columns() const;
  /// The extents as 64x32, or "scalar".
  std::string shape_text() const;
};

/// Reads rows [first, first + count) of one tensor as doubles, exact but for 64-bit integers.
using RowsReader = std::function<void(std::int64_t first, std::int64_t count, std::span<double> out)>;

/// An open set of tensors. Movable.
class TensorSet {
 public:
  /// Opens a safetensors file, a folder with model.safetensors.index.json or any *.safetensors, or a checkpoint
  /// argument. Throws Error `path: reason`, also if two tensors have the same key or an index and its files disagree.
  TensorSet(const std::string& path, TensorNames names);
  ~TensorSet();
  TensorSet(TensorSet&&) noexcept;
  TensorSet& operator=(TensorSet&&) noexcept;

  /// Whether `path` is a safetensors file or a folder of them, not a checkpoint.
  static bool is_safetensors(const std::string& path);

  /// Path as given.
  const std::string& path() const;
  /// The names that are translated.
  TensorNames names() const;
  /// Whether it is a checkpoint or a folder with a config.json: weights of a model. Other files may be gradients.
  bool holds_weights() const;
  /// The value of a key of the metadata of a safetensors file, of several files the first; nothing of a checkpoint.
  std::optional<std::string> metadata(const std::string& key) const;
  /// Messages about damaged checkpoints that were passed over, see ckpt::Checkpoint::passed_over().
  std::vector<std::string> passed_over() const;
  /// All tensors, sorted by key.
  const std::vector<NamedTensor>& tensors() const;
  /// The tensor with that key, or null.
  const NamedTensor* find(std::string_view key) const;
  /// Heads of the model, from its configuration or from the metadata of a file, as fp8-step --gradients writes it;
  /// nothing without these.
  const std::optional<Heads>& heads() const;
  /// The tensor as one of a single dimension, so that pieces of any size can be read, if its elements are in one piece
  /// of a file; otherwise the tensor as it is.
  NamedTensor flat(NamedTensor tensor) const;
  /// A reader of the rows of a tensor, or of a part of one, in the order of the file. Codes of a checkpoint are
  /// multiplied by their scales, and codes of a safetensors file are not. The set must outlive the reader.
  RowsReader reader(const NamedTensor& tensor) const;

 private:
  friend void split_fused(TensorSet& a, TensorSet& b);
  RowsReader stored_reader(const NamedTensor& tensor) const;
  struct State;
  std::unique_ptr<State> state_;
};

/// Replaces each fused q, k and v of either set by its parts, with the heads of `a` or, if it has none, of `b`. Throws
/// Error `path: tensor: reason` if neither has any, or if a tensor does not have the rows of these heads.
void split_fused(TensorSet& a, TensorSet& b);

}  // namespace fp8::convert
