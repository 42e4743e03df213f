/// Files with every call checked, and the protocol that makes an output appear whole or not at all.
/// Not a virtual file system: POSIX on a local or shared disk. Every function throws Error `path: reason` on failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fp8 {

/// An open file. Closed by the destructor; call close() where a failed write must be seen.
class File {
 public:
  /// Not open.
  File() = default;
  /// Opens an existing file for reading.
  static File open_read(const std::string& path);
  /// Opens an existing file for reading and writing in place.
  static File open_update(const std::string& path);
  /// Opens or creates a file whose every write goes to its end.
  static File open_append(const std::string& path);
  /// Creates a file (mode 0666 less the umask) for reading and writing; it must not exist.
  static File create_exclusive(const std::string& path);
  /// A file without a name in the folder for temporary files (TMPDIR, else /tmp); it is gone when it is closed. Its
  /// path, for messages, is that folder.
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

  /// Reads up to `bytes.size()` bytes at the file position; returns how many, 0 only at the end.
  std::size_t read_some(std::span<std::byte> bytes);
  /// Fills `bytes` from the file position; throws when the file ends before.
  void read_exact(std::span<std::byte> bytes);
  /// Fills `bytes` from byte `offset` without moving the file position; throws when the file ends before.
  void pread_exact(std::span<std::byte> bytes, std::uint64_t offset) const;
  /// Writes all of `bytes` at the file position.
  void write_all(std::span<const std::byte> bytes);
  /// Writes all of `text` at the file position.
  void write_all(std::string_view text);
  /// Writes all of `bytes` at byte `offset` without moving the file position.
  void pwrite_all(std::span<const std::byte> bytes, std::uint64_t offset);
  /// Moves the file position to byte `offset`.
  void seek(std::uint64_t offset);
  /// Size in bytes now.
  std::uint64_t size() const;
  /// Cuts or extends (with zeros) to `size` bytes.
  void truncate(std::uint64_t size);
  /// Returns when all bytes are on the disk.
  void sync();
  /// Closes; throws when the system reports a lost write.
  void close();

 private:
  File(int fd, std::string path);
  static File open(const std::string& path, int flags);
  int fd_ = -1;
  std::string path_;
};

/// A file that appears under its name only when it is whole: written beside the target, committed by a rename.
class AtomicFile {
 public:
  /// Checks the target (see check_output) and creates an empty temporary file beside it, mode 0666 less the umask. It
  /// is locked as long as this lives, which spares it from remove_leftovers().
  AtomicFile(const std::string& target, bool force);
  /// Removes the temporary file unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// The temporary file: write here, and close it before commit().
  const std::string& path() const { return temporary_; }
  /// Syncs the temporary file, renames it to the target and syncs the folder. Without `force`, a target that appeared
  /// meanwhile is kept and refused.
  void commit();

 private:
  std::string target_;
  std::string temporary_;
  File lock_;
  bool force_;
  bool committed_ = false;
};

/// Throws unless `path` can be an output: its folder exists, and it either does not exist or is a regular file and
/// `force` is set. Message: `path: exists (use --force to replace it)`.
void check_output(const std::string& path, bool force);

/// Renames the folder `temporary` to `final_path`, which must not exist, and syncs the parent folder. The caller has
/// synced the files and the folder itself.
void commit_directory(const std::string& temporary, const std::string& final_path);

/// Syncs a folder, so that the names in it are on the disk.
void fsync_directory(const std::string& path);

/// Forgets the cached pages of a file that has been synced, or those of its first `bytes` where given, so that the next
/// read comes from the disk. A hint: a file system that cannot do it is no error.
void drop_page_cache(int fd, std::uint64_t bytes = 0);

/// Bytes that an ordinary user may still write on the file system that holds `path`.
std::uint64_t free_space(const std::string& path);

/// Removes a file, a link (not what it points to) or a folder with all in it; nothing to remove is no error.
void remove_tree(const std::string& path);

/// Whole content of a file (a pipe is fine). Throws when it holds more than `max_bytes`.
std::string read_text_file(const std::string& path, std::uint64_t max_bytes);

/// Folder part of a path: "." where there is none.
std::string parent_directory(const std::string& path);

}  // namespace fp8
