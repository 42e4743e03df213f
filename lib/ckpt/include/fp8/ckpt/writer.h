/// Writes checkpoints: a single file (ModelWriter), or one file per rank (ShardWriter) and the manifest that makes a
/// folder of them a checkpoint (commit_folder). A checkpoint appears under its name only when it is whole: written
/// beside it, synced, dropped from the page cache, read again and compared with its digests, then renamed. Bytes depend
/// on content and the order of calls alone. No MPI here: the caller gathers the FileEntry of each rank and agrees on
/// errors.
#pragma once

#include <memory>
#include <span>

#include "fp8/ckpt/tensor_meta.h"
#include "fp8/json/value.h"

namespace fp8::ckpt {

/// Streams one single-file checkpoint; memory in use is small whatever the tensors' sizes.
class ModelWriter {
 public:
  /// Starts beside `path`. Throws when `path` exists without `force`, or is not a regular file, or its folder cannot be
  /// written.
  ModelWriter(const std::string& path, Kind kind, bool force);
  /// Removes what was written unless it was committed.
  ~ModelWriter();
  ModelWriter(ModelWriter&&) noexcept;
  ModelWriter& operator=(ModelWriter&&) noexcept;

  /// The document `config`, `train` or `provenance`.
  void document(const std::string& name, const json::Value& value);
  /// The text of tokenizer.json.
  void tokenizer(std::string_view text);
  /// Begins a tensor; its bytes follow by write() in storage order.
  void begin_tensor(const TensorMeta& meta);
  /// The next bytes of the tensor; any split is fine.
  void write(std::span<const std::byte> bytes);
  /// Ends the tensor; throws unless all of its bytes were written.
  void end_tensor();
  /// A whole tensor at once.
  void tensor(const TensorMeta& meta, std::span<const std::byte> bytes);
  /// Syncs, verifies and renames. Throws without touching `path` when anything is wrong.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Rows [begin, end) of a tensor.
struct Block {
  TensorMeta tensor;       ///< the whole tensor
  std::int64_t begin = 0;  ///< first row
  std::int64_t end = 0;    ///< behind the last row
};

/// A finished shard, as the manifest records it.
struct FileEntry {
  std::string name;           ///< bare name: rank-%05d-of-%05d.h5
  std::uint64_t bytes = 0;    ///< size of the file
  std::string digest;         ///< of all bytes after the user block, as that block states too
  std::vector<Block> blocks;  ///< what it holds, in the order of writing
};

/// A FileEntry as JSON, to be sent to the rank that writes the manifest.
json::Value to_json(const FileEntry& entry);
/// Inverse of to_json; throws Error naming `what`.
FileEntry file_entry_from_json(const json::Value& value, const std::string& what);

/// Streams the file of one rank. A rank leaves out tensors of which it owns no row, so a tensor without any rows is in
/// no folder. The documents go into rank 0's file alone.
class ShardWriter {
 public:
  /// Creates `folder`/rank-%05d-of-%05d.h5; `folder` is the temporary one.
  ShardWriter(const std::string& folder, std::int64_t rank, std::int64_t world, Kind kind);
  ~ShardWriter();
  ShardWriter(ShardWriter&&) noexcept;
  ShardWriter& operator=(ShardWriter&&) noexcept;

  /// The document `config`, `train` or `provenance`; rank 0 only.
  void document(const std::string& name, const json::Value& value);
  /// The text of tokenizer.json; rank 0 only.
  void tokenizer(std::string_view text);
  /// Begins rows [begin, end) of `meta`, begin < end (begin = 0, end = 1 for a scalar).
  void begin_tensor(const TensorMeta& meta, std::int64_t begin, std::int64_t end);
  /// The next bytes of the block; any split is fine.
  void write(std::span<const std::byte> bytes);
  /// Ends the block; throws unless all of its bytes were written.
  void end_tensor();
  /// A whole block at once; nothing where begin == end.
  void tensor(const TensorMeta& meta, std::int64_t begin, std::int64_t end, std::span<const std::byte> bytes);
  /// Syncs, drops the page cache, reads again and verifies. No call may follow.
  FileEntry finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Makes the empty temporary folder for the checkpoint `final_path`, removing one left by a killed run, and returns its
/// path
/// (`final_path` + ".tmp"). One rank calls it; the others wait for it.
std::string begin_folder(const std::string& final_path);
/// Throws Error with sizes and a cure unless the file system that holds `folder` has `bytes` free.
void check_space(const std::string& folder, std::uint64_t bytes);
/// Writes the manifest last, syncs, renames `temporary` to `final_path` and syncs the parent. One rank calls it, with
/// the entries of all ranks in any order; throws unless their blocks cover every tensor exactly once. What `final_path`
/// held before (a damaged checkpoint of that step) is replaced in one exchange and removed. `mesh` is stored as given.
void commit_folder(const std::string& temporary, const std::string& final_path, Kind kind, const json::Value& mesh,
                   const std::vector<FileEntry>& entries);

class Checkpoint;
/// Copies the tensor `name` from `source` to `target` in pieces, all attributes kept.
void copy_tensor(const Checkpoint& source, const std::string& name, ModelWriter& target);
/// Copies every tensor of a section that this version does not define.
void copy_unknown(const Checkpoint& source, ModelWriter& target);

}  // namespace fp8::ckpt
