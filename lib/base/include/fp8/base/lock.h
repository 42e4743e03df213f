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
  /// Why the file system cannot lock the file, as take() found; empty if it can. The lock is then not held.
  const std::string& unlockable() const { return unlockable_; }

 private:
  File file_;
  std::string unlockable_;
};

}  // namespace fp8
