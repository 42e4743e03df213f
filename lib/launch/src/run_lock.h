/// Exclusive lock on the folder of a run or of a sweep.
#pragma once

#include <string>

namespace fp8::launch {

/// Locks the folder during its lifetime. A command that inherits the descriptor keeps the lock, so that a second writer
/// is refused also after the supervisor was killed. Advisory, among programs that use this class; a file system without
/// locks is no error.
class RunLock {
 public:
  /// Creates `folder` if it does not exist. Throws Error `folder: reason`, which names the program `holder`, when
  /// another process holds the lock.
  RunLock(const std::string& folder, const std::string& holder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  /// Whether `folder` still is the locked folder, which can be removed, renamed or replaced.
  bool in_place() const;
  /// Throws Error `folder: reason` unless in_place().
  void check() const;

 private:
  std::string folder_;
  int fd_;
};

}  // namespace fp8::launch
