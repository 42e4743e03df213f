/// Writes an HDF5 file whose bytes depend on nothing but what is put into it: no time stamps, no host, no path. HDF5
/// lays the file out; the numbers themselves go to their place by plain writes, so that a full disk or a write error is
/// seen at the call that met it. Not a commit: the caller writes to a temporary path and renames (see AtomicFile, and
/// the crate ckpt for checkpoints).
#pragma once

#include <memory>
#include <span>

#include "fp8/h5/types.h"

namespace fp8::h5 {

/// A file being written, front to back. After the first error the writer never enters HDF5 again, gives the space of
/// the file back and throws on any further call; remove the file before writing to its path again. Not thread-safe;
/// different writers may run in different threads.
class Writer {
 public:
  /// Creates `path`, or empties the file that is there. With a magic word the file begins with a user block that
  /// finish() fills; without one it is a plain HDF5 file.
  explicit Writer(const std::string& path, std::string_view magic = {});
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();

  /// Sets an attribute of the group `name` ("" is the root), which is created when missing.
  void attribute(std::string_view group, const std::string& name, const AttributeValue& value);

  /// Begins a dataset; groups on its way are created. `attributes` are added to `dtype` (always) and `digest` (by
  /// end_dataset). f32 and f64 are stored as IEEE floats, bf16 as a 16-bit float, FP8 and E8M0 codes as uint8.
  void begin_dataset(const std::string& name, DType dtype, std::span<const std::int64_t> shape,
                     const Attributes& attributes = {});
  /// The next bytes of the dataset, in storage order; any split is fine.
  void write(std::span<const std::byte> bytes);
  /// Ends the dataset: all of its bytes must have been written. Stores and returns their digest (XXH3-128, hex).
  std::string end_dataset();
  /// A whole dataset at once.
  std::string dataset(const std::string& name, DType dtype, std::span<const std::int64_t> shape,
                      std::span<const std::byte> bytes, const Attributes& attributes = {});
  /// A whole uint8 vector holding text.
  std::string text(const std::string& name, std::string_view value);

  /// Ends the writing: all bytes but the user block's are on the disk. Only finish() may follow, which calls it where
  /// it was not called.
  void sync();
  /// Makes a file behind a user block good: drops it from the page cache, reads it again, compares every byte with what
  /// was written by digests, then fills the user block and syncs it. Returns the digest of all bytes after the user
  /// block ("" without a magic word: such a file is synced and no more). No call may follow.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp8::h5
