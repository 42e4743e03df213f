// flock on the folder itself; a rename does not release it, so check() compares the folder with its path.
#include "run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "fp8/base/error.h"
#include "fp8/base/folders.h"
#include "fp8/base/lock.h"

namespace fp8::launch {

RunLock::RunLock(const std::string& folder, const std::string& holder) : folder_(folder) {
  make_folders(folder);
  fd_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);  // NOLINT(android-cloexec-open): the command inherits the lock
  if (fd_ < 0) throw_errno(folder, "cannot be opened", errno);
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(fd_);
  throw Error(folder + ": in use by another " + holder + " or by a command that it started");
}

bool RunLock::in_place() const { return is_still_at(fd_, folder_); }

void RunLock::check() const { check_still_at(fd_, folder_); }

RunLock::~RunLock() { ::close(fd_); }

}  // namespace fp8::launch
