/// One at a time in the folder of a run.
#pragma once

#include <string>

namespace fp8::launch {

/// Holds the folder while it lives, and longer while a command that inherited it goes on: not even a supervisor that
/// was killed leaves a second writer a way in. Advisory, among programs that use this class; a file system that cannot
/// lock is no error.
class RunLock {
 public:
  /// Makes the folder if it is not there. Throws Error `run: reason` when another one holds it.
  explicit RunLock(const std::string& run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_;
};

}  // namespace fp8::launch
