/// Locks between processes, on files. They are open file description locks (fcntl F_OFD_SETLK), not flock(2) and not
/// POSIX process locks: the kernel releases the lock when the descriptor is closed or the process ends for any reason;
/// closing another descriptor of the same file does not release it; and over NFS the client locks on the server, so
/// that locks hold between machines, unless the mount has nolock or local_lock.
#pragma once

#include <optional>
#include <string>

#include "fp8/base/file.h"

namespace fp8 {

/// Locks the whole file behind a descriptor that is open for writing. Returns false with errno set: EAGAIN if another
/// holder has the lock, any other value if the file system cannot lock.
bool try_lock(int fd);

/// Whether `path`, links followed, is the file or folder behind the open descriptor `fd`, by device and inode. False if
/// there is no such path; true where the system cannot tell, such as after an I/O error.
bool is_still_at(int fd, const std::string& path);

/// Throws Error `path: reason` unless is_still_at(): the folder of a run, opened as `fd`, was removed, renamed or
/// replaced.
void check_still_at(int fd, const std::string& path);

/// A lock file that contains the name of its holder. It is emptied, not removed, when the lock is released: one process
/// could lock a removed file while another creates and locks a new one.
class LockFile {
 public:
  /// Holds nothing.
  LockFile() = default;
  /// Empties the file and releases the lock.
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  /// Creates the file if missing, locks it and writes "host H, process P, since T" into it, T in UTC. Returns nothing
  /// on success; the line in the file if another process holds the lock, "" if the file stays empty for a second.
  /// Throws Error if the file cannot be opened. Failure to write the line is ignored.
  std::optional<std::string> take(const std::string& path);
  /// Whether the path given to take() still is the locked file; true if no lock is held.
  bool in_place() const { return !file_.is_open() || is_still_at(file_.fd(), file_.path()); }
  /// Why the file system cannot lock the file, as take() found; empty if it can. The lock is then not held.
  const std::string& unlockable() const { return unlockable_; }

 private:
  File file_;
  std::string unlockable_;
};

/// A folder that one process at a time writes. A lock belongs to an inode, not to a path: once the folder or the lock
/// file in it is removed or renamed, another process can lock a new one at the same path. This object therefore holds
/// both open, and its user calls check() before each write.
class LockedFolder {
 public:
  /// Opens the folder `path` and takes the lock file `.lock` in it, see LockFile::take() for what is returned.
  std::optional<std::string> take(const std::string& path);
  /// Whether take() succeeded.
  bool taken() const { return folder_.is_open(); }
  /// Descriptor of the folder, for calls that must not reach another folder at the same path; -1 unless taken.
  int fd() const { return folder_.fd(); }
  /// See LockFile::unlockable(); check() then looks at the folder alone.
  const std::string& unlockable() const { return lock_.unlockable(); }
  /// Whether the path still is the opened folder, and `.lock` in it the locked file; true unless taken. Costs a stat of
  /// each path and of each descriptor. Any thread.
  bool in_place() const;
  /// Throws Error `path: reason` unless in_place().
  void check() const;

 private:
  File folder_;
  LockFile lock_;
};

}  // namespace fp8
