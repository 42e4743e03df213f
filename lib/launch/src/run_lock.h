/// Exclusive lock on the folder of a run.
#pragma once

#include <string>

namespace fp8::launch {

/// Locks the folder during its lifetime. A command that inherits the descriptor keeps the lock, so that a killed
/// supervisor does not let a second writer in. Advisory, among programs that use this class; a file system without
/// locks is no error.
class RunLock {
 public:
  /// Creates the folder if it does not exist. Throws Error `run: reason` when another process holds the lock.
  explicit RunLock(const std::string& run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_;
};

}  // namespace fp8::launch
