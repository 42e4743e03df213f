// Atomic outputs: temporary name, sync, rename, sync of the folder.
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "fp8/base/checked.h"
#include "fp8/base/file.h"
#include "fp8/base/folders.h"
#include "fp8/base/lock.h"
#include "output.h"

namespace fp8 {
namespace {

// renameat2 in the folder `parent`, or by path if it is -1. Returns 0, or -1 with errno set.
int rename_in(int parent, const std::string& from, const std::string& to, unsigned flags) {
  if (parent < 0) return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags);
  const std::filesystem::path old_path(from), new_path(to);
  return ::renameat2(parent, old_path.filename().c_str(), parent, new_path.filename().c_str(), flags);
}

// A rename that does not replace. On file systems without RENAME_NOREPLACE: a check, then a plain rename.
void rename_new(const std::string& from, const std::string& to, int parent = -1) {
  if (rename_in(parent, from, to, RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST) throw_exists(to);
  if (errno != EINVAL && errno != ENOSYS) throw_errno(to, "cannot rename to it", errno);
  struct stat s {};
  if (status_of(to, s)) throw_exists(to);
  if (rename_in(parent, from, to, 0) != 0) throw_errno(to, "cannot rename to it", errno);
}

constexpr std::size_t kSuffixLetters = 8;
constexpr std::string_view kUnfinished = ".tmp";
constexpr const char* kFolderLock =
    "/.lock";  // name of the lock file in a temporary folder, which the writer of the folder locks

std::string without_last_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// NAME of a file name ".NAME.xxxxxxxx.tmp"; nothing for another file name.
std::optional<std::string> target_of(const std::string& name) {
  constexpr std::size_t kEnd = 1 + kSuffixLetters + kUnfinished.size();
  const bool temporary =
      name.size() > kEnd && name[0] == '.' && name[name.size() - kEnd] == '.' && name.ends_with(kUnfinished);
  return temporary ? std::optional(name.substr(1, name.size() - kEnd - 1)) : std::nullopt;
}

std::string random_suffix() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) throw_errno("getrandom", "", errno);
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuv";
  std::string s;
  for (std::size_t i = 0; i < kSuffixLetters; ++i, bits >>= 5U) s += kLetters[bits & 31U];
  return s;
}

}  // namespace

std::string parent_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

AtomicFile::AtomicFile(const std::string& target, bool force) : target_(target), force_(force) {
  check_target(target, force);
  const std::string name = std::filesystem::path(target).filename().string();
  const std::string temporary =
      parent_directory(target) + "/." + name + "." + random_suffix() + std::string(kUnfinished);
  try {
    lock_ = File::create_exclusive(temporary);
    (void)try_lock(lock_.fd());  // without locks, remove_leftovers() removes nothing
  } catch (const Error& e) {
    throw Error(target + std::string(e.what()).substr(temporary.size()), e.code(),
                e.hints());  // the user gave only the target
  }
  temporary_ = temporary;
}

AtomicFile::~AtomicFile() {
  if (!committed_ && !temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::commit() {
  File file = File::open_update(temporary_);
  file.sync();
  file.close();
  if (force_) {
    check_target(target_, true);
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) throw_errno(target_, "cannot rename to it", errno);
  } else {
    rename_new(temporary_, target_);
  }
  committed_ = true;
  fsync_directory(parent_directory(target_));
}

std::vector<std::string> remove_leftovers(const std::string& output) {
  const std::string target = without_last_slashes(output);
  const std::string own = std::filesystem::path(target).filename().string();
  std::vector<std::string> removed;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent_directory(target), error)) {
    if (target_of(entry.path().filename().string()) != own) continue;
    std::error_code ignored;
    const std::filesystem::file_status status = entry.symlink_status(ignored);
    const bool folder = std::filesystem::is_directory(status);
    if (!folder && !std::filesystem::is_regular_file(status)) continue;
    const std::string lock = entry.path().string() + (folder ? kFolderLock : "");
    const int fd = ::open(lock.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    const bool left = fd >= 0 && try_lock(fd);
    if (left) remove_tree(removed.emplace_back(entry.path().string()));
    if (fd >= 0) ::close(fd);
  }
  return removed;
}

void remove_unfinished() noexcept try {
  constexpr int kAttempts = 100;  // another thread may add files to a folder that is being removed
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    std::filesystem::path path = std::filesystem::read_symlink(entry.path(), ignored);
    const int flags = ::fcntl(std::atoi(entry.path().filename().c_str()), F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) != O_RDWR) continue;  // inputs are only read
    if ("/" + path.filename().string() == kFolderLock) path = path.parent_path();
    if (!target_of(path.filename().string())) continue;
    for (int i = 0; i < kAttempts; ++i)
      if (std::filesystem::remove_all(path, ignored) != static_cast<std::uintmax_t>(-1)) break;
  }
} catch (...) {  // without /proc or memory the files stay, and the next run of the tool removes them
}

void commit_directory(const std::string& temporary, const std::string& final_path, int parent) {
  rename_new(temporary, final_path, parent);
  fsync_directory(parent_directory(final_path));
}

void replace_directory(const std::string& temporary, const std::string& final_path, int parent) {
  if (rename_in(parent, temporary, final_path, RENAME_EXCHANGE) == 0) {
    fsync_directory(parent_directory(final_path));
    remove_tree(temporary);
    return;
  }
  if (errno != ENOSYS && errno != EINVAL) throw_errno(final_path, "cannot replace", errno);
  const std::string old = final_path + ".old.tmp";  // used where the file system cannot exchange names
  remove_tree(old);
  if (rename_in(parent, final_path, old, 0) != 0) throw_errno(final_path, "cannot replace", errno);
  commit_directory(temporary, final_path, parent);
  remove_tree(old);
}

AtomicFolder::AtomicFolder(const std::string& target, bool replace)
    : target_(without_last_slashes(target)), replace_(replace) {
  const std::string parent = parent_directory(target_);
  struct stat s {};
  if (::stat(parent.c_str(), &s) != 0) throw_errno(target_, "cannot write in " + parent, errno);
  if (status_of(target_, s)) {
    if (!S_ISDIR(s.st_mode)) throw Error(target_ + ": exists and is not a folder");
    if (!replace_) throw_exists(target_);
  }
  const std::string name = std::filesystem::path(target_).filename().string();
  const std::string temporary = parent + "/." + name + "." + random_suffix() + std::string(kUnfinished);
  if (::mkdir(temporary.c_str(), 0777) != 0) throw_errno(target_, "cannot write in " + parent, errno);
  try {
    lock_ = File::create_exclusive(temporary + kFolderLock);
    (void)try_lock(lock_.fd());  // without locks, remove_leftovers() removes nothing
  } catch (const Error&) {
    ::rmdir(temporary.c_str());
    throw;
  }
  temporary_ = temporary;
}

AtomicFolder::~AtomicFolder() {
  if (committed_ || temporary_.empty()) return;
  try {
    remove_tree(temporary_);
  } catch (const Error&) {  // a destructor cannot report; the name says that the folder is temporary
  }
}

void AtomicFolder::commit() {
  if (::unlink(lock_.path().c_str()) != 0) throw_errno(lock_.path(), "cannot remove", errno);
  fsync_directory(temporary_);
  std::error_code ignored;
  if (replace_ && std::filesystem::is_directory(target_, ignored)) {
    replace_directory(temporary_, target_);
  } else {
    commit_directory(temporary_, target_);
  }
  committed_ = true;
}

void make_folders(const std::string& path) {
  std::error_code error;
  if (path.empty() || std::filesystem::is_directory(path, error)) return;
  const std::string name = without_last_slashes(path);
  make_folders(parent_directory(name));
  if (::mkdir(name.c_str(), 0777) != 0 && errno != EEXIST) throw_errno(name, "cannot make the folder", errno);
  if (!std::filesystem::is_directory(name, error)) throw Error(name + ": exists and is not a folder");
  fsync_directory(parent_directory(name));
}

void fsync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw_errno(path, "", errno);
  const int rc = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some network file systems cannot sync a folder and fail with EINVAL.
  if (rc != 0 && error != EINVAL) throw_errno(path, "cannot sync", error);
}

void drop_page_cache(int fd, std::uint64_t bytes) {
  (void)::posix_fadvise(fd, 0, static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
}

std::uint64_t free_space(const std::string& path) {
  struct statvfs s {};
  if (::statvfs(path.c_str(), &s) != 0) throw_errno(path, "cannot determine its free space", errno);
  if (s.f_blocks == 0) return kUnknownSpace;
  return checked_mul<std::uint64_t>(s.f_bavail, s.f_frsize, path + ": free space");
}

void remove_tree(const std::string& path, const PieceRunner& run) {
  std::error_code error;
  if (run && std::filesystem::is_directory(std::filesystem::symlink_status(path, error))) {
    std::error_code ignored;  // an error occurs again below
    const std::filesystem::directory_iterator end;
    for (std::filesystem::directory_iterator at(path, error); !error && at != end; at.increment(error))
      run([&] { std::filesystem::remove_all(at->path(), ignored); });
  }
  std::filesystem::remove_all(path, error);
  if (error) throw_errno(path, "cannot remove", error.value());
}

}  // namespace fp8
