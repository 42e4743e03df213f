/// Writes an HDF5 file whose bytes depend only on its content: no time stamps, no host, no path. HDF5 builds its
/// metadata in memory; all bytes are written by plain writes, so that a full disk or a write error is reported by the
/// call that caused it, and data lost by the disk is detected by digests. Atomic replacement is the caller's task:
/// write to a temporary path and rename (see AtomicFile, and the crate ckpt for checkpoints).
#pragma once

#include <memory>
#include <span>

#include "fp8/base/file.h"
#include "fp8/h5/types.h"

namespace fp8::h5 {

/// A file that is written front to back. After the first error the writer frees the file's disk space and throws on any
/// further call; remove the file before writing to its path again. Not thread-safe; different writers may run in
/// different threads.
class Writer {
 public:
  /// Creates `path`, or empties an existing file; with `exclusive`, an existing file is an error. The file begins with
  /// a user block of the magic word, which finish() fills. All bytes of datasets are written, synced and read back
  /// through `run`, in pieces of 256 KiB (8 MiB for the sync).
  Writer(const std::string& path, std::string_view magic, bool exclusive = false, PieceRunner run = {});
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();

  /// Sets an attribute of the group `name` ("" is the root), which is created when missing.
  void attribute(std::string_view group, const std::string& name, const AttributeValue& value);

  /// Begins a dataset; missing groups of its path are created. `attributes` are added to `dtype` (always) and `digest`
  /// (by end_dataset). f32 and f64 are stored as IEEE floats, bf16 as a 16-bit float, FP8 and E8M0 codes as uint8.
  /// `values` are those that the dataset may hold, see invalid().
  void begin_dataset(const std::string& name, DType dtype, std::span<const std::int64_t> shape,
                     const Attributes& attributes = {}, Values values = Values::any);
  /// The next bytes of the dataset, in storage order, in pieces of any size.
  void write(std::span<const std::byte> bytes);
  /// Ends the dataset: all of its bytes must have been written. Stores and returns their digest (XXH3-128, hex).
  std::string end_dataset();
  /// A whole dataset at once.
  std::string dataset(const std::string& name, DType dtype, std::span<const std::int64_t> shape,
                      std::span<const std::byte> bytes, const Attributes& attributes = {});
  /// A whole uint8 vector holding text.
  std::string text(const std::string& name, std::string_view value);

  /// Writes and syncs all bytes except the user block. Only finish() may follow, which calls sync() if needed.
  void sync();
  /// Drops the file from the page cache, reads it back, compares every byte with the written data by digests, then
  /// fills the user block and syncs it. Returns the digest of all bytes after the user block. No call may follow.
  std::string finish();
  /// After finish(): `/name: reason` of each dataset that holds a forbidden value.
  const std::vector<std::string>& invalid() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp8::h5
