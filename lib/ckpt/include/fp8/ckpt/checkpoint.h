/// Reads a checkpoint, a single file or a folder of one file per rank, as whole tensors, any rows at a time. Loading on
/// another number of ranks, merging and resharding use the same reads. Input is untrusted: files pass the checks of
/// fp8::h5, blocks must cover each tensor exactly once, and a shard without the digest stated in the manifest
/// is refused on opening. verify() reads every byte. No MPI: each rank opens the checkpoint separately. Users check the
/// shapes against the model.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "fp8/ckpt/block.h"
#include "fp8/ckpt/tensor_meta.h"
#include "fp8/json/value.h"

namespace fp8::ckpt {

/// An open checkpoint. Movable, not copyable; const members are thread-safe. Files of a folder are opened on first use.
/// Errors are Error with `path: reason` or `path: /dataset: reason`.
class Checkpoint {
 public:
  /// Opens `path`: a file, or a folder with manifest.json. Reads the documents, checks their digests, and reads the
  /// list of tensors, no weights.
  static Checkpoint open(const std::string& path);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  /// Opens the files of a folder now instead of on first use, so that they can be read to the end although the
  /// checkpoint is removed meanwhile, as a run with --keep does. A file that cannot be opened is left to its first use.
  /// At most half of the descriptors of the process are used; files beyond that are opened on first use.
  void hold() const;

  /// Path as given.
  const std::string& path() const;
  /// Kind of the checkpoint.
  FileKind kind() const;
  /// Version of the format.
  std::int64_t version() const;
  /// Digest of the file or, for a folder, of the manifest: changes with any byte of the checkpoint; 32 hex digits.
  const std::string& digest() const;
  /// A message for each damaged checkpoint that was passed over for this one, see ckpt::passed_over(): tools print
  /// them. Empty unless open_of_run() has opened it.
  const std::vector<std::string>& passed_over() const;
  /// Sets passed_over().
  void set_passed_over(std::vector<std::string> messages);
  /// Number of ranks that wrote it; 1 for a single file.
  std::int64_t world() const;
  /// The process mesh that wrote it, as given to commit_folder; null for a single file.
  const json::Value& mesh() const;

  /// The model's configuration under Hugging Face's keys.
  const json::Value& config() const;
  /// State of the run: step, tokens, position, seeds, settings; null if there is none (only training checkpoints have
  /// one).
  const json::Value& train() const;
  /// History of tools: an array of {"tool", "version", "command"}; empty if there is none.
  const json::Value& provenance() const;
  /// Text of tokenizer.json, if stored with the model.
  std::optional<std::string> tokenizer() const;
  /// Attribute `tokenizer` of the root: identifier of the training data's tokenizer, if no tokenizer.json is stored.
  std::optional<std::string> tokenizer_id() const;

  /// Texts of other files of the Hugging Face folder that the model came from, by file name.
  std::map<std::string, std::string> huggingface() const;

  /// All tensors, sorted by name.
  const std::vector<TensorMeta>& tensors() const;
  /// The tensors whose names begin with `prefix`, sorted by name.
  std::vector<TensorMeta> tensors(std::string_view prefix) const;
  /// Tensors of sections that this version does not define, sorted by name.
  std::vector<TensorMeta> unknown() const;
  /// The tensor of this full name, or null.
  const TensorMeta* find(std::string_view name) const;
  /// The tensor of this full name; throws when there is none.
  const TensorMeta& at(std::string_view name) const;

  /// Rows [begin, end) as stored, from all files that hold a part of them, into `out` of exactly (end - begin) x
  /// row_bytes() bytes.
  void read_rows(std::string_view name, std::int64_t begin, std::int64_t end, std::span<std::byte> out) const;
  /// Reads rows as floats: f32 and bf16 exactly, f64 rounded, FP8 and E8M0 codes as the values that they represent,
  /// without scales. `out` has one float per element.
  void read_rows_as_f32(std::string_view name, std::int64_t begin, std::int64_t end, std::span<float> out) const;
  /// The whole tensor as stored.
  void read(std::string_view name, std::span<std::byte> out) const;

  /// Number of HDF5 files: 1, or one per rank.
  std::size_t file_count() const;
  /// Path of file i.
  std::string file_path(std::size_t i) const;
  /// Returns the buffer for a block of a tensor, contiguous: host memory of exactly the bytes of its elements, or empty
  /// for none.
  using Destination = std::function<std::span<std::byte>(const TensorMeta&, const Block&)>;
  /// Reads every byte of file i once and checks: its digest against its user block and the manifest, each dataset's
  /// digest, its blocks against the manifest, its values against values_of(). Ranks may divide the files. Throws Error
  /// naming the file and, if known, the tensor. Blocks for which `destination` (may be empty) returns a buffer are
  /// copied to it as stored; if this throws, the buffers are invalid.
  void verify_file(std::size_t i, const Destination& destination = {}) const;
  /// Calls verify_file for all files, several in parallel (OpenMP); throws the first file's error. open() has checked
  /// the manifest's own digest.
  void verify() const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fp8::ckpt
