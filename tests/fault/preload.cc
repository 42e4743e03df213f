// Preloaded into a program under test: counts the calls by which it changes what lies under a folder, and at one of
// them kills it or lets the call fail. Not a file system of its own: calls go to the kernel, and what lies elsewhere is
// left alone. Everything is asked for in the environment, since the program must not know:
//   FAULT_UNDER  the folder, an absolute path without links; nothing is done without it
//   FAULT_AT     the number of the call, from 1; 0 or none: calls are only counted
//   FAULT_DO     kill         the program is killed before the call
//                torn         half of the bytes are written, then it is killed
//                power        what was not synced is lost, bytes and names, then it is killed
//                bytes        bytes that were not synced are lost, names are not, then it is killed
//                eio, enospc  the call fails
//                drop         a write, or a change of a file's size, succeeds and does nothing
//                hang         the call never returns
//                slow         the call takes FAULT_MS milliseconds longer
//                limit        files may not grow beyond FAULT_BYTES (RLIMIT_FSIZE)
//   FAULT_FOR    how many calls that is true for; 1 unless told, 0 for all
//   FAULT_CALLS  the calls that count, such as `write fsync`; all unless told
//   FAULT_PATH   the end of the paths of the calls that count; all unless told
//   FAULT_IN     only in the program of this name
//   FAULT_RANK   only in this rank of mpirun
//   FAULT_LOG    a file elsewhere that gets a line `CALL PATH` for each call that counts
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace {

std::string setting(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

long number(const char* name, long otherwise) {
  const std::string text = setting(name);
  return text.empty() ? otherwise : std::strtol(text.c_str(), nullptr, 10);
}

std::string parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

// `path` after `from` became `to`.
void move_prefix(std::string& path, const std::string& from, const std::string& to) {
  if (path == from || path.starts_with(from + "/")) path = to + path.substr(from.size());
}

// Bytes that were written and not synced.
struct Written {
  std::string path;
  std::int64_t offset, count;
};

// A name that was made, changed or moved, and whose folder was not synced since.
struct Named {
  enum Kind { created, moved, exchanged } kind;
  std::string path, from, replaced;  // replaced: where a file lies whose place was taken
};

class Fault {
 public:
  static Fault& get() {
    static Fault fault;
    return fault;
  }

  // The absolute path of a name in a call; empty when it does not lie under the folder.
  std::string place(int folder, const char* name) const {
    if (!on_ || name == nullptr) return {};
    std::string path = name;
    if (!path.starts_with('/')) path = (folder == AT_FDCWD ? target("/proc/self/cwd") : path_of(folder)) + "/" + path;
    return inside(std::filesystem::path(path).lexically_normal().string());
  }
  std::string place(int fd) const { return on_ ? inside(path_of(fd)) : std::string(); }

  // Counts a call on `path`. True when it must fail, with errno set, or with errno 0 do nothing. `half` writes half of
  // what the call would.
  template <class Half>
  bool call(const char* name, const std::string& path, Half half) {
    if (path.empty() || !counts(name, path)) return false;
    std::unique_lock lock(mutex_);
    const long at = ++count_;
    if (log_ >= 0) {
      const std::string line = std::string(name) + " " + path + "\n";
      syscall(SYS_write, log_, line.data(), line.size());
    }
    const bool now = at_ >= 1 && at >= at_ && (for_ < 1 || at < at_ + for_);
    if (do_ == "limit") limit(now);
    if (!now || do_ == "limit") return false;
    if (do_ == "eio" || do_ == "enospc") {
      errno = do_ == "eio" ? EIO : ENOSPC;
      return true;
    }
    if (do_ == "drop") {
      errno = 0;
      return true;
    }
    if (do_ == "hang" || do_ == "slow") {
      lock.unlock();
      while (do_ == "hang") pause();
      usleep(static_cast<useconds_t>(1000 * number("FAULT_MS", 0)));
      return false;
    }
    if (do_ == "torn") half();
    if (losing_) lose();
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
  }
  bool call(const char* name, const std::string& path) {
    return call(name, path, [] {});
  }

  void wrote(int fd, const std::string& path, std::int64_t offset, std::int64_t count) {
    if (!losing_ || path.empty() || count <= 0) return;
    const std::lock_guard lock(mutex_);
    struct stat s {};
    if (offset < 0) offset = (fstat(fd, &s), s.st_size) - count;  // it was appended
    written_.push_back({path, offset, count});
  }
  void synced(const std::string& path) {
    const std::lock_guard lock(mutex_);
    std::erase_if(written_, [&](const Written& w) { return w.path == path; });
    std::erase_if(named_, [&](const Named& n) {
      const bool known = parent(n.path) == path || (n.kind != Named::created && parent(n.from) == path);
      if (known && !n.replaced.empty()) syscall(SYS_unlinkat, AT_FDCWD, n.replaced.c_str(), 0);
      return known;
    });
  }
  void created(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (losing_ && !path.empty()) named_.push_back({Named::created, path, {}, {}});
  }
  // Before a file takes the place of another: the other is kept, since its name may come back.
  std::string keep(const std::string& path) {
    if (do_ != "power" || path.empty()) return {};
    std::string kept = path + ".replaced";
    return syscall(SYS_linkat, AT_FDCWD, path.c_str(), AT_FDCWD, kept.c_str(), 0) == 0 ? kept : std::string();
  }
  void moved(const std::string& from, const std::string& to, bool exchange, const std::string& replaced) {
    const std::lock_guard lock(mutex_);
    if (!losing_ || to.empty()) return;
    follow(from, to, exchange);
    named_.push_back({exchange ? Named::exchanged : Named::moved, to, from, replaced});
  }

 private:
  Fault() {
    const std::string only = setting("FAULT_IN"), rank = setting("FAULT_RANK");
    on_ = !under_.empty() && (only.empty() || only == program_invocation_short_name) &&
          (rank.empty() || rank == setting("OMPI_COMM_WORLD_RANK"));
    const std::string log = setting("FAULT_LOG");
    if (on_ && !log.empty())
      log_ =
          static_cast<int>(syscall(SYS_openat, AT_FDCWD, log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  }

  static std::string target(const std::string& link) {
    std::string text(PATH_MAX, '\0');
    const ssize_t n = readlink(link.c_str(), text.data(), text.size());
    text.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
    return text;
  }
  static std::string path_of(int fd) { return target("/proc/self/fd/" + std::to_string(fd)); }
  std::string inside(const std::string& path) const {
    return path == under_ || path.starts_with(under_ + "/") ? path : std::string();
  }
  bool counts(const std::string& name, const std::string& path) const {
    if (!path.ends_with(path_)) return false;
    if (do_ == "drop" && name != "write" && name != "ftruncate") return false;
    return calls_.empty() || (" " + calls_ + " ").find(" " + name + " ") != std::string::npos;
  }
  void follow(const std::string& from, const std::string& to, bool exchange) {
    const auto change = [&](std::string& path) {
      const std::string before = path;
      move_prefix(path, from, to);
      if (exchange && path == before) move_prefix(path, to, from);
    };
    for (Written& w : written_) change(w.path);
    for (Named& n : named_) change(n.path), change(n.from);
  }

  static void limit(bool now) {
    rlimit r{};
    getrlimit(RLIMIT_FSIZE, &r);
    r.rlim_cur = now ? static_cast<rlim_t>(number("FAULT_BYTES", 0)) : r.rlim_max;
    setrlimit(RLIMIT_FSIZE, &r);
  }

  // The state of a disk that lost its power: bytes that were not synced are zeros, names are as they were where told
  // to.
  void lose() {
    for (const Written& w : written_) {
      const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, w.path.c_str(), O_WRONLY));
      const std::string zeros(static_cast<std::size_t>(w.count), '\0');
      if (fd >= 0) syscall(SYS_pwrite64, fd, zeros.data(), zeros.size(), w.offset);
      if (fd >= 0) syscall(SYS_close, fd);
    }
    while (do_ == "power" && !named_.empty()) {
      const Named n = named_.back();
      named_.pop_back();
      on_ = false;  // the next calls go through the functions below
      std::error_code ignored;
      if (n.kind == Named::created) std::filesystem::remove_all(n.path, ignored);
      if (n.kind != Named::created) {
        syscall(SYS_renameat2, AT_FDCWD, n.path.c_str(), AT_FDCWD, n.from.c_str(),
                n.kind == Named::exchanged ? RENAME_EXCHANGE : 0);
        follow(n.path, n.from, n.kind == Named::exchanged);
        if (!n.replaced.empty()) syscall(SYS_renameat2, AT_FDCWD, n.replaced.c_str(), AT_FDCWD, n.path.c_str(), 0);
      }
    }
  }

  const std::string under_ = setting("FAULT_UNDER"), do_ = setting("FAULT_DO"), calls_ = setting("FAULT_CALLS"),
                    path_ = setting("FAULT_PATH");
  const long at_ = number("FAULT_AT", 0), for_ = number("FAULT_FOR", 1);
  const bool losing_ = do_ == "power" || do_ == "bytes";
  bool on_ = false;
  int log_ = -1;
  long count_ = 0;
  std::mutex mutex_;
  std::vector<Written> written_;
  std::vector<Named> named_;
};

ssize_t write_at(int fd, const void* data, size_t size, off_t offset) {
  const auto now = [&](size_t n) {
    return static_cast<ssize_t>(offset < 0 ? syscall(SYS_write, fd, data, n)
                                           : syscall(SYS_pwrite64, fd, data, n, offset));
  };
  Fault& f = Fault::get();
  const std::string path = f.place(fd);
  if (f.call("write", path, [&] { now(size / 2); })) return errno == 0 ? static_cast<ssize_t>(size) : -1;
  const off_t at = offset >= 0 || (fcntl(fd, F_GETFL) & O_APPEND) != 0 ? offset : lseek(fd, 0, SEEK_CUR);
  const ssize_t n = now(size);
  f.wrote(fd, path, at, n);
  return n;
}

int sync_file(const char* name, long how, int fd) {
  Fault& f = Fault::get();
  const std::string path = f.place(fd);
  if (f.call(name, path)) return -1;
  const int rc = static_cast<int>(syscall(how, fd));
  if (rc == 0 && !path.empty()) f.synced(path);
  return rc;
}

int open_at(int folder, const char* name, int flags, unsigned mode) {
  Fault& f = Fault::get();
  const std::string path = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0 ? f.place(folder, name) : "";
  if (f.call("open", path)) return -1;
  const bool there = path.empty() || faccessat(AT_FDCWD, path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  const int fd = static_cast<int>(syscall(SYS_openat, folder, name, flags, mode));
  if (fd >= 0 && !there) f.created(path);
  return fd;
}

int rename_at(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  Fault& f = Fault::get();
  const std::string source = f.place(from_folder, from), path = f.place(to_folder, to);
  if (f.call("rename", path)) return -1;
  const std::string replaced = flags == 0 ? f.keep(path) : "";
  const int rc = static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  if (rc == 0) f.moved(source, path, (flags & RENAME_EXCHANGE) != 0, replaced);
  return rc;
}

int make_folder(int folder, const char* name, mode_t mode) {
  Fault& f = Fault::get();
  const std::string path = f.place(folder, name);
  if (f.call("mkdir", path)) return -1;
  const int rc = static_cast<int>(syscall(SYS_mkdirat, folder, name, mode));
  if (rc == 0) f.created(path);
  return rc;
}

int remove_at(int folder, const char* name, int flags) {
  Fault& f = Fault::get();
  if (f.call("unlink", f.place(folder, name))) return -1;
  return static_cast<int>(syscall(SYS_unlinkat, folder, name, flags));
}

int resize(int fd, off_t size) {
  Fault& f = Fault::get();
  if (f.call("ftruncate", f.place(fd))) return errno == 0 ? 0 : -1;
  return static_cast<int>(syscall(SYS_ftruncate, fd, size));
}

// The mode of an open call that creates.
unsigned mode_of(int flags, va_list more) { return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, unsigned) : 0; }

}  // namespace

#define OPEN(folder, name, flags)             \
  va_list more;                               \
  va_start(more, flags);                      \
  const unsigned mode = mode_of(flags, more); \
  va_end(more);                               \
  return open_at(folder, name, flags, mode)

extern "C" {
int open(const char* name, int flags, ...) { OPEN(AT_FDCWD, name, flags); }
int open64(const char* name, int flags, ...) { OPEN(AT_FDCWD, name, flags); }
int openat(int folder, const char* name, int flags, ...) { OPEN(folder, name, flags); }
int openat64(int folder, const char* name, int flags, ...) { OPEN(folder, name, flags); }
ssize_t write(int fd, const void* data, size_t size) { return write_at(fd, data, size, -1); }
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) { return write_at(fd, data, size, offset); }
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) { return write_at(fd, data, size, offset); }
ssize_t writev(int fd, const iovec* parts, int count) {
  std::string all;
  for (const iovec* p = parts; p < parts + count; ++p) all.append(static_cast<const char*>(p->iov_base), p->iov_len);
  return write_at(fd, all.data(), all.size(), -1);
}
int fsync(int fd) { return sync_file("fsync", SYS_fsync, fd); }
int fdatasync(int fd) { return sync_file("fsync", SYS_fdatasync, fd); }
int rename(const char* from, const char* to) { return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return rename_at(from_folder, from, to_folder, to, 0);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return rename_at(from_folder, from, to_folder, to, flags);
}
int mkdir(const char* name, mode_t mode) { return make_folder(AT_FDCWD, name, mode); }
int mkdirat(int folder, const char* name, mode_t mode) { return make_folder(folder, name, mode); }
int unlink(const char* name) { return remove_at(AT_FDCWD, name, 0); }
int unlinkat(int folder, const char* name, int flags) { return remove_at(folder, name, flags); }
int rmdir(const char* name) { return remove_at(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char* name) {
  const int rc = remove_at(AT_FDCWD, name, 0);
  return rc != 0 && errno == EISDIR ? remove_at(AT_FDCWD, name, AT_REMOVEDIR) : rc;
}
int ftruncate(int fd, off_t size) { return resize(fd, size); }
int ftruncate64(int fd, off64_t size) { return resize(fd, size); }
}
