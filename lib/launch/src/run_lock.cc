// flock on the folder itself; a rename does not release it.
#include "run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "fp8/base/error.h"
#include "fp8/base/folders.h"

namespace fp8::launch {

RunLock::RunLock(const std::string& run) {
  make_folders(run);
  fd_ = ::open(run.c_str(), O_RDONLY | O_DIRECTORY);  // NOLINT(android-cloexec-open): the command inherits the lock
  if (fd_ < 0) throw_errno(run, "cannot be opened", errno);
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(fd_);
  throw Error(run + ": in use by another fp8-resume or by a command that it started");
}

RunLock::~RunLock() { ::close(fd_); }

}  // namespace fp8::launch
