/// Files with every call checked, and the protocol by which an output appears complete or not at all. POSIX files on a
/// local or shared disk. Every function throws Error `path: reason` on failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp8 {

/// Called with each piece of a long read, write or removal; calls `piece` once, on any thread, before it returns.
/// Throws what `piece` throws, or an Error of its own to end the work.
using PieceRunner = std::function<void(const std::function<void()>& piece)>;

/// Runs a piece through `run`, directly where that is empty.
inline void run_piece(const PieceRunner& run, const std::function<void()>& piece) { run ? run(piece) : piece(); }

/// An open file. The destructor closes it and ignores errors; call close() where a failed write must be reported.
class File {
 public:
  /// Not open.
  File() = default;
  /// Called with the path of a named pipe to which nothing has been written for a second.
  using Waiting = std::function<void(const std::string& path)>;

  /// Opens an existing file for reading. Waits for the first byte of a named pipe, and calls `waiting` (may be empty)
  /// once if nothing arrives within a second. Throws Error for a Git LFS pointer: the text that a clone has in place of
  /// a large file that was not fetched.
  static File open_read(const std::string& path, const Waiting& waiting = {});
  /// Opens an existing file for reading and writing in place.
  static File open_update(const std::string& path);
  /// Opens or creates a file; every write appends to the end.
  static File open_append(const std::string& path);
  /// Creates a file (mode 0666 less the umask), or empties an existing one, for reading and writing.
  static File create_or_empty(const std::string& path);
  /// Creates a file (mode 0666 less the umask) for reading and writing; it must not exist.
  static File create_exclusive(const std::string& path);
  /// A file without a name in `folder`, for reading and writing. The system deletes it when it is closed. It has a name
  /// for a moment on file systems that cannot make one without. path() returns `path`, and errors name it.
  static File unnamed(const std::string& folder, const std::string& path);
  /// The same in the folder for temporary files (TMPDIR, else /tmp), which path() returns.
  static File temporary();

  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  /// Whether a file is open.
  bool is_open() const { return fd_ >= 0; }
  /// The descriptor, still owned by this object; -1 when not open.
  int fd() const { return fd_; }
  /// The path it was opened by, for messages.
  const std::string& path() const { return path_; }

  /// Reads up to `bytes.size()` bytes at the file position; returns the number read, 0 only at the end.
  std::size_t read_some(std::span<std::byte> bytes);
  /// Fills `bytes` from the file position; throws when the file ends first.
  void read_exact(std::span<std::byte> bytes);
  /// Fills `bytes` from byte `offset` without moving the file position; throws when the file ends first.
  void pread_exact(std::span<std::byte> bytes, std::uint64_t offset) const;
  /// Writes all of `bytes` at the file position.
  void write_all(std::span<const std::byte> bytes);
  /// Writes all of `text` at the file position.
  void write_all(std::string_view text);
  /// Writes all of `bytes` at byte `offset` without moving the file position.
  void pwrite_all(std::span<const std::byte> bytes, std::uint64_t offset);
  /// Moves the file position to byte `offset`.
  void seek(std::uint64_t offset);
  /// Current size in bytes.
  std::uint64_t size() const;
  /// Truncates or extends (with zeros) to `size` bytes.
  void truncate(std::uint64_t size);
  /// Begins to write bytes [begin, end) to the disk and returns at once, so that sync() has less to wait for, and
  /// reports errors.
  void start_sync(std::uint64_t begin, std::uint64_t end);
  /// Returns when all bytes are on the disk; with `run`, their write-back is waited for in pieces of 8 MiB.
  void sync(const PieceRunner& run = {});
  /// Closes; throws when the system reports a lost write.
  void close();

 private:
  File(int fd, std::string path);
  static File open(const std::string& path, int flags);
  int fd_ = -1;
  std::string path_;
};

/// A file that appears under its final name only when it is complete: written under a temporary name in the same
/// folder, then renamed.
class AtomicFile {
 public:
  /// Checks the target as check_output() does, which a tool calls first with the paths that it reads, but for files of
  /// a run, which runs write with this class. Creates an empty temporary file in the same folder, mode 0666 less the
  /// umask. The temporary file is locked while this object exists, so that remove_leftovers() does not delete it.
  AtomicFile(const std::string& target, bool force);
  /// Removes the temporary file unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// The final name, which commit() sets.
  const std::string& target() const { return target_; }
  /// The temporary file: write here, and close it before commit().
  const std::string& path() const { return temporary_; }
  /// Syncs the temporary file, renames it to the target and syncs the folder. Without `force`, throws Error if the
  /// target was created in the meantime.
  void commit();

 private:
  std::string target_;
  std::string temporary_;
  File lock_;
  bool force_;
  bool committed_ = false;
};

/// Throws unless `path` can be an output of a tool that reads `inputs`: its folder exists, check_not_input() and
/// check_not_of_run() pass, and it either does not exist or is a regular file and `force` is set. Message: `path:
/// exists (use --force to replace it)`.
void check_output(const std::string& path, bool force, const std::vector<std::string>& inputs);

/// Throws Error if `output`, a file or a folder, exists and shares a file or a folder (device and inode, links
/// followed) with one of `inputs`: paths of files, or of folders, which stand for all that they hold, whether it is
/// read or not;
/// "-" is the file behind standard input, and a path that does not exist is ignored. Throws also if `output` is an
/// existing file of a committed checkpoint, be it an input or not: a folder with manifest.json and files of ranks
/// (fp8-checkpoint(5)). Therefore -f never replaces an input or a part of a model.
void check_not_input(const std::string& output, const std::vector<std::string>& inputs);

/// Throws Error if `output`, a file or a folder that need not exist, is one that a run writes in its folder, or is in
/// such a folder: log.jsonl, tensors.jsonl, .lock, step-00001000, profile-3-5.json, attempts.json, sweep.json or
/// sweep.log in a folder that holds a log.jsonl, .lock, sweep.json or step-00001000, or that is `own`, the folder of a
/// run that has none of these yet. Links and ".." are resolved.
void check_not_of_run(const std::string& output, const std::string& own = "");

/// Renames the folder `temporary` to `final_path`, which must not exist, and syncs the parent folder. The caller has
/// synced the files and the folder itself. `parent`, if not -1, is a descriptor of the folder of both paths: the rename
/// then happens in that folder, also if it has been renamed or another folder has taken its place.
void commit_directory(const std::string& temporary, const std::string& final_path, int parent = -1);

/// Commits like commit_directory(), but replaces a folder `final_path`, which is removed. A folder has that name at any
/// time, except for a moment on file systems that cannot exchange names.
void replace_directory(const std::string& temporary, const std::string& final_path, int parent = -1);

/// Syncs a folder, so that its entries are on the disk.
void fsync_directory(const std::string& path);

/// Drops the cached pages of a synced file, or of its first `bytes` bytes if given, so that the next read comes from
/// the disk. Best effort: a file system without support is no error.
void drop_page_cache(int fd, std::uint64_t bytes = 0);

/// The free space of a file system that states no size, as some of those in user space.
inline constexpr std::uint64_t kUnknownSpace = ~std::uint64_t{0};
/// Bytes that an ordinary user may still write on the file system that holds `path`, or kUnknownSpace.
std::uint64_t free_space(const std::string& path);

/// Removes a file, a link (not its target) or a folder with its contents; a missing path is no error. Each entry of a
/// folder is a piece.
void remove_tree(const std::string& path, const PieceRunner& run = {});

/// Whole content of a file or pipe. Throws when it holds more than `max_bytes`. `waiting` as in File::open_read().
std::string read_whole_file(const std::string& path, std::uint64_t max_bytes, const File::Waiting& waiting = {});

/// read_whole_file() without a byte order mark at the beginning.
std::string read_text_file(const std::string& path, std::uint64_t max_bytes, const File::Waiting& waiting = {});

/// Folder part of a path: "." where there is none.
std::string parent_directory(const std::string& path);

}  // namespace fp8
