/// Reads a checkpoint, one file or a folder of one file per rank, so that a caller sees whole tensors and may read any
/// rows of them: loading on another number of ranks, merging and resharding are the same thing. Nothing is trusted:
/// files pass the checks of fp8::h5, blocks of rows must cover each tensor exactly once, and a shard that does not
/// carry the digest that the manifest states is refused on opening. verify() reads every byte. No MPI here: each rank
/// opens the checkpoint by itself. Not training logic: shapes are checked against the model by its user.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "fp8/ckpt/tensor_meta.h"
#include "fp8/json/value.h"

namespace fp8::ckpt {

/// An open checkpoint. Moves, does not copy; const members may be called from several threads. Files of a folder are
/// opened when they are first needed. Errors are Error with `path: reason` or `path: /dataset: reason`.
class Checkpoint {
 public:
  /// Opens `path`: a file, or a folder with manifest.json. Reads the documents, whose digests it checks, and the list
  /// of tensors, no weights.
  static Checkpoint open(const std::string& path);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  /// Path as given.
  const std::string& path() const;
  /// What it is for.
  Kind kind() const;
  /// Version of its format.
  std::int64_t version() const;
  /// Whether it is a folder of shards.
  bool is_folder() const;
  /// Changes when any of its bytes does: that of the file, or of the manifest; 32 hex digits.
  const std::string& digest() const;
  /// Ranks that wrote it; 1 for a single file.
  std::int64_t world() const;
  /// The process mesh that wrote it, as given to commit_folder; null for a single file.
  const json::Value& mesh() const;

  /// The model's configuration under Hugging Face's keys.
  const json::Value& config() const;
  /// State of the run: step, tokens, position, seeds, settings; null when there is none (only training checkpoints have
  /// one).
  const json::Value& train() const;
  /// What each tool did: an array of {"tool", "version", "command"}; empty when there is none.
  const json::Value& provenance() const;
  /// Text of tokenizer.json, when it travels with the model.
  std::optional<std::string> tokenizer() const;

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

  /// Rows [begin, end) as stored, whichever files hold them, into `out` of exactly (end - begin) x row_bytes() bytes.
  void read_rows(std::string_view name, std::int64_t begin, std::int64_t end, std::span<std::byte> out) const;
  /// The same as floats, from f32 or bf16 (exact), f64 rounded, FP8 and E8M0 codes as the values they stand for without
  /// any scale. `out` has one float an element.
  void read_rows_as_f32(std::string_view name, std::int64_t begin, std::int64_t end, std::span<float> out) const;
  /// The whole tensor as stored.
  void read(std::string_view name, std::span<std::byte> out) const;

  /// Number of HDF5 files: 1, or one per rank that wrote.
  std::size_t file_count() const;
  /// Path of file i.
  std::string file_path(std::size_t i) const;
  /// Says where rows [begin, end) of a tensor are wanted: exactly (end - begin) x row_bytes() of host memory, or none.
  using Destination = std::function<std::span<std::byte>(const TensorMeta&, std::int64_t begin, std::int64_t end)>;
  /// Reads every byte of file i once: its digest against its user block and the manifest, each dataset's digest, its
  /// blocks against the manifest. Ranks may share the files among them. Throws Error naming the file and, where it can
  /// be told, the tensor. Blocks that `destination` (which may be empty) gives a place are left there as stored; when
  /// this throws they are not to be believed.
  void verify_file(std::size_t i, const Destination& destination = {}) const;
  /// verify_file for all files, several at a time (OpenMP's threads); throws the first file's error. The manifest's own
  /// digest has been checked by open().
  void verify() const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fp8::ckpt
