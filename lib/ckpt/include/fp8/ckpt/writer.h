/// Writes checkpoints: a single file (ModelWriter), or one file per rank (ShardWriter) and the manifest that makes
/// their folder a checkpoint (commit_folder). A checkpoint appears under its name only when it is complete: written
/// under a temporary name, synced, dropped from the page cache, read back and compared with its digests, then renamed.
/// The bytes depend only on content and the order of calls. No MPI: the caller gathers the FileEntry of each rank and
/// agrees on errors.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>

#include "fp8/base/file.h"
#include "fp8/base/lock.h"
#include "fp8/ckpt/block.h"
#include "fp8/ckpt/tensor_meta.h"
#include "fp8/json/value.h"

namespace fp8::ckpt {

/// Called with `path: /name: reason`; may throw.
using InvalidTensor = std::function<void(const std::string& reason)>;

/// One file of a checkpoint, written as a stream; memory use does not grow with the tensors.
class FileWriter {
 public:
  /// The document `config`, `train` or `provenance`. The documents and texts are in a single file, or in that of rank
  /// 0; the calls throw Error for another rank.
  void document(const std::string& name, const json::Value& value);
  /// The text of tokenizer.json.
  void tokenizer(std::string_view text);
  /// Identifier of the tokenizer of a model without a tokenizer.json: "bytes", or a digest (fp8-tokens(5)).
  void tokenizer_id(const std::string& id);
  /// Texts of other files of a Hugging Face folder, by file name. Throws Error unless the names are
  /// bare, see is_bare_name().
  void huggingface(const std::map<std::string, std::string>& files);
  /// The next bytes of the tensor or block that was begun, in pieces of any size.
  void write(std::span<const std::byte> bytes);
  /// Ends the tensor or block; throws unless all of its bytes were written.
  void end_tensor();

 protected:
  struct State;
  explicit FileWriter(std::unique_ptr<State> state);
  ~FileWriter();
  FileWriter(FileWriter&&) noexcept;
  FileWriter& operator=(FileWriter&&) noexcept;
  std::unique_ptr<State> state_;
};

/// Writes a single-file checkpoint.
class ModelWriter : public FileWriter {
 public:
  /// Creates a temporary file next to `path`, which is removed unless it is committed. Throws when `path` exists
  /// without `force`, or is not a regular file, or its folder cannot be written.
  ModelWriter(const std::string& path, FileKind kind, bool force);

  /// Begins a tensor; its bytes follow by write() in storage order.
  void begin_tensor(const TensorMeta& meta);
  /// A whole tensor at once.
  void tensor(const TensorMeta& meta, std::span<const std::byte> bytes);
  /// Syncs, verifies and renames. Throws without touching `path` on any error. `invalid` is called with each tensor
  /// that has a value forbidden by values_of(); without `invalid`, such a value is an error too.
  void commit(const InvalidTensor& invalid = {});
};

/// A block of a tensor in a file.
struct TensorBlock {
  TensorMeta tensor;  ///< the whole tensor
  Block block;        ///< what the file holds of it
};

/// A finished shard, as the manifest records it.
struct FileEntry {
  std::string name;                 ///< bare name: rank-%05d-of-%05d.h5
  std::uint64_t bytes = 0;          ///< size of the file
  std::string digest;               ///< digest of all bytes after the user block, equal to the one in that block
  std::vector<TensorBlock> blocks;  ///< its blocks, in the order of writing
};

/// A FileEntry as JSON, for the rank that writes the manifest.
json::Value to_json(const FileEntry& entry);
/// Inverse of to_json; throws Error naming `what`.
FileEntry file_entry_from_json(const json::Value& value, const std::string& what);

/// Writes the file of one rank: at most one block of each tensor. What several ranks hold alike is written by one of
/// them. A rank skips tensors of which it writes nothing, so a tensor without elements is in no file.
class ShardWriter : public FileWriter {
 public:
  /// Creates `folder`/rank-%05d-of-%05d.h5; `folder` is the temporary folder. Writes and reads back through `run`.
  ShardWriter(const std::string& folder, std::int64_t rank, std::int64_t world, FileKind kind, PieceRunner run = {});

  /// Begins a block of `meta`, which must not be empty; its bytes follow by write(), contiguous, in storage order.
  void begin_tensor(const TensorMeta& meta, const Block& block);
  /// A whole block at once; does nothing if it is empty.
  void tensor(const TensorMeta& meta, const Block& block, std::span<const std::byte> bytes);
  /// Syncs, drops the page cache, reads back and verifies. `invalid` as in ModelWriter::commit(). No call may follow.
  FileEntry finish(const InvalidTensor& invalid = {});
};

/// Creates the empty temporary folder for the checkpoint `final_path`, after removing one left by a killed run, and
/// returns its path (`final_path` + ".tmp"). One rank calls it; the others wait for it. `held` (may be null), the lock
/// of the run's folder, is checked, and the temporary folder is made in the folder that it holds open, not in another
/// one at the same path.
std::string begin_folder(const std::string& final_path, const LockedFolder* held = nullptr);
/// Throws Error with sizes and a hint unless the file system that holds `folder` has `bytes` bytes free.
void check_space(const std::string& folder, std::uint64_t bytes);
/// Writes the manifest last, syncs, renames `temporary` to `final_path` and syncs the parent. Called by one rank, with
/// the entries of all ranks in any order; throws unless their blocks cover every tensor exactly once. An existing
/// folder `final_path` (a damaged checkpoint of that step) is exchanged atomically and removed. `mesh` is the number of
/// ranks along each dimension of comm::MeshShape, as {"dp_replicate": 1, "dp_shard": 2, "pp": 1, "ep": 1, "tp": 1};
/// throws unless it has as many ranks as there are entries. `held` (may be null) is checked last before the rename,
/// which happens in the folder that it holds open.
void commit_folder(const std::string& temporary, const std::string& final_path, FileKind kind, const json::Value& mesh,
                   const std::vector<FileEntry>& entries, const LockedFolder* held = nullptr);

class Checkpoint;
/// Copies the tensor `name` from `source` to `target` in pieces, with all attributes.
void copy_tensor(const Checkpoint& source, const std::string& name, ModelWriter& target);
/// Copies the text of tokenizer.json, or the tokenizer's identifier if there is none, and the texts of other files of a
/// Hugging Face folder.
void copy_texts(const Checkpoint& source, ModelWriter& target);
/// Copies every tensor of a section that this version does not define.
void copy_unknown(const Checkpoint& source, ModelWriter& target);

}  // namespace fp8::ckpt
