// fcntl locks, and the line in a lock file.
#include "fp8/base/lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

#include "fp8/base/error.h"
#include "fp8/base/host.h"
#include "fp8/base/utc.h"

namespace fp8 {
namespace {

constexpr std::uint64_t kLongestHolder = 4096;  // bytes
constexpr auto kPause = std::chrono::milliseconds(50);
constexpr int kPauses = 20;
constexpr const char* kRunEnds = "; the run ends and writes nothing more";

// The line of a lock file for this process.
std::string this_process() {
  return "host " + host_name() + ", process " + std::to_string(::getpid()) + ", since " +
         utc_text(std::chrono::system_clock::now());
}

}  // namespace

bool try_lock(int fd) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

bool is_still_at(int fd, const std::string& path) {
  struct stat held {
  }, found{};
  const bool is_found = ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &found) == 0;
  if (!is_found) return errno != ENOENT && errno != ENOTDIR && errno != ESTALE;  // ESTALE: removed, over NFS
  return held.st_dev == found.st_dev && held.st_ino == found.st_ino;
}

void check_still_at(int fd, const std::string& path) {
  if (is_still_at(fd, path)) return;
  struct stat s {};
  const bool replaced = ::stat(path.c_str(), &s) == 0;
  throw Error(path +
              (replaced ? ": another folder has taken the place of the folder of this run"
                        : ": the folder of this run has been removed or renamed") +
              kRunEnds);
}

LockFile::~LockFile() {
  if (file_.is_open() && unlockable_.empty())
    (void)::ftruncate(file_.fd(), 0);  // the lock decides who holds it, not this line
}

std::optional<std::string> LockFile::take(const std::string& path) {
  File file = File::open_append(path);
  for (int i = 0; !try_lock(file.fd()); ++i) {
    if (errno != EAGAIN && errno != EACCES) {
      unlockable_ = std::generic_category().message(errno);
      return std::nullopt;
    }
    // A holder writes its line just after locking the file, which may still contain the line of the previous holder.
    std::this_thread::sleep_for(kPause);
    const std::string line = read_text_file(path, kLongestHolder);
    if (line.ends_with('\n')) return line.substr(0, line.find('\n'));
    if (i == kPauses) return "";
  }
  if (!is_still_at(file.fd(), path)) return take(path);  // removed between open and lock
  file_ = std::move(file);
  try {
    file_.truncate(0);
    file_.write_all(this_process() + "\n");
    file_.sync();  // over NFS, other machines read the server's copy
  } catch (const Error&) {
    // On a full disk the lock holds without the line.
  }
  return std::nullopt;
}

std::optional<std::string> LockedFolder::take(const std::string& path) {
  File folder = File::open_read(path);
  if (auto holder = lock_.take(path + "/.lock")) return holder;
  folder_ = std::move(folder);
  check();
  return std::nullopt;
}

bool LockedFolder::in_place() const {
  return !taken() || (is_still_at(folder_.fd(), folder_.path()) && lock_.in_place());
}

void LockedFolder::check() const {
  if (!taken()) return;
  check_still_at(folder_.fd(), folder_.path());
  if (!lock_.in_place())
    throw Error(folder_.path() + "/.lock: has been removed or replaced while this run held the lock, so another job " +
                "may write to the folder" + kRunEnds);
}

}  // namespace fp8
