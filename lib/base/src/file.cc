// File: system calls with short counts, interruptions and errors handled.
#include "fp8/base/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "fp8/base/checked.h"
#include "fp8/base/input.h"
#include "fp8/base/text.h"
#include "transfer.h"

namespace fp8 {
namespace {

constexpr std::uint64_t kWriteBack = std::uint64_t{8} << 20U;

off_t file_offset(const std::string& path, std::uint64_t offset) {
  return checked_cast<off_t>(offset, path + ": offset");
}

// Calls `io(position, length)`, a read or write that may transfer less than requested, until `size` bytes are
// transferred; returns their number, which is less only at the end of a file.
template <typename Io>
std::size_t all_of(const std::string& path, const char* reason, std::size_t size, Io io) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = io(done, std::min(size - done, kMostAtOnce));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(path, reason, errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

// Throws for the short text that Git has in place of a file until its large files are fetched.
void refuse_lfs_pointer(const File& file) {
  constexpr std::string_view kBegin = "version https://git-lfs.github.com/spec/v1\n";
  constexpr off_t kMost = 1024;  // bytes of a pointer, by its specification
  struct stat s {};
  if (::fstat(file.fd(), &s) != 0 || !S_ISREG(s.st_mode) || s.st_size <= std::ssize(kBegin) || s.st_size > kMost)
    return;
  std::array<char, kBegin.size()> head{};
  file.pread_exact(std::as_writable_bytes(std::span(head)), 0);
  if (std::string_view(head.data(), head.size()) == kBegin)
    throw Error(file.path() + ": a Git LFS pointer, not the file; run git lfs pull");
}

[[noreturn]] void throw_short(const std::string& path, std::size_t missing) {
  throw Error(path + ": ends " + std::to_string(missing) + " bytes too early");
}

}  // namespace

File::File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

File File::open(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) throw_errno(path, "", errno);
  return File(fd, path);
}

File File::open_read(const std::string& path, const Waiting& waiting) {
  struct stat s {};
  if (!waiting || ::stat(path.c_str(), &s) != 0 || !S_ISFIFO(s.st_mode)) {
    File file = open(path, O_RDONLY);
    refuse_lfs_pointer(file);
    return file;
  }
  File file = open(path, O_RDONLY | O_NONBLOCK);  // does not wait for a writer
  constexpr int kPatienceMs = 1000;
  pollfd wanted{.fd = file.fd(), .events = POLLIN, .revents = 0};
  for (int timeout = kPatienceMs;;) {
    const int ready = ::poll(&wanted, 1, timeout);
    if (ready > 0) break;
    if (ready < 0 && errno != EINTR) throw_errno(path, "cannot wait for it", errno);
    if (ready < 0 || timeout < 0) continue;
    waiting(path);
    timeout = -1;
  }
  const int flags = ::fcntl(file.fd(), F_GETFL);
  if (flags < 0 || ::fcntl(file.fd(), F_SETFL, flags & ~O_NONBLOCK) != 0) throw_errno(path, "cannot be set up", errno);
  return file;
}
File File::open_update(const std::string& path) { return open(path, O_RDWR); }
File File::open_append(const std::string& path) {
  // Opening a pipe without O_NONBLOCK would block until a reader opens it.
  File file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK);
  struct stat s {};
  if (::fstat(file.fd(), &s) != 0) throw_errno(path, "", errno);
  if (S_ISFIFO(s.st_mode)) throw Error(path + ": is a pipe, not a file");
  return file;
}
File File::create_or_empty(const std::string& path) { return open(path, O_RDWR | O_CREAT | O_TRUNC); }
File File::create_exclusive(const std::string& path) { return open(path, O_RDWR | O_CREAT | O_EXCL); }

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

std::size_t File::read_some(std::span<std::byte> bytes) { return fp8::read_some(fd_, path_, bytes); }

void File::read_exact(std::span<std::byte> bytes) {
  const std::size_t n = all_of(path_, "cannot read", bytes.size(),
                               [&](std::size_t at, std::size_t size) { return ::read(fd_, &bytes[at], size); });
  if (n < bytes.size()) throw_short(path_, bytes.size() - n);
}

void File::pread_exact(std::span<std::byte> bytes, std::uint64_t offset) const {
  const off_t from =
      file_offset(path_, checked_add<std::uint64_t>(offset, bytes.size(), path_)) - static_cast<off_t>(bytes.size());
  const std::size_t n = all_of(path_, "cannot read", bytes.size(), [&](std::size_t at, std::size_t size) {
    return ::pread(fd_, &bytes[at], size, from + static_cast<off_t>(at));
  });
  if (n < bytes.size()) throw_short(path_, bytes.size() - n);
}

void File::write_all(std::span<const std::byte> bytes) {
  const std::size_t n = all_of(path_, "cannot write", bytes.size(),
                               [&](std::size_t at, std::size_t size) { return ::write(fd_, &bytes[at], size); });
  if (n < bytes.size()) throw Error(path_ + ": cannot write");
}

void File::write_all(std::string_view text) { write_all(std::as_bytes(std::span(text))); }

void File::pwrite_all(std::span<const std::byte> bytes, std::uint64_t offset) {
  const off_t from =
      file_offset(path_, checked_add<std::uint64_t>(offset, bytes.size(), path_)) - static_cast<off_t>(bytes.size());
  const std::size_t n = all_of(path_, "cannot write", bytes.size(), [&](std::size_t at, std::size_t size) {
    return ::pwrite(fd_, &bytes[at], size, from + static_cast<off_t>(at));
  });
  if (n < bytes.size()) throw Error(path_ + ": cannot write");
}

void File::seek(std::uint64_t offset) {
  if (::lseek(fd_, file_offset(path_, offset), SEEK_SET) < 0) throw_errno(path_, "cannot seek", errno);
}

std::uint64_t File::size() const {
  struct stat s {};
  if (::fstat(fd_, &s) != 0) throw_errno(path_, "cannot determine its size", errno);
  return static_cast<std::uint64_t>(s.st_size);
}

void File::truncate(std::uint64_t size) {
  if (::ftruncate(fd_, file_offset(path_, size)) != 0) throw_errno(path_, "cannot resize", errno);
}

void File::start_sync(std::uint64_t begin, std::uint64_t end) {
  (void)::sync_file_range(fd_, file_offset(path_, begin), file_offset(path_, end - begin), SYNC_FILE_RANGE_WRITE);
}

void File::sync(const PieceRunner& run) {
  const std::uint64_t end = run ? size() : 0;
  for (std::uint64_t at = 0; at < end; at += kWriteBack) {
    run([&] {
      const unsigned how = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
      const int rc = ::sync_file_range(fd_, file_offset(path_, at), static_cast<off_t>(kWriteBack), how);
      // A lost write is reported once, to this call or to fsync. Other errors: the file system does not support it.
      if (rc != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT)) throw_errno(path_, "cannot sync", errno);
    });
  }
  if (::fsync(fd_) != 0) throw_errno(path_, "cannot sync", errno);
}

void File::close() {
  // After a failed close the descriptor is closed nevertheless; EINTR on Linux means closed.
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) throw_errno(path_, "cannot close", errno);
}

std::string read_whole_file(const std::string& path, std::uint64_t max_bytes, const File::Waiting& waiting) {
  constexpr std::size_t kPiece = std::size_t{1} << 16U;
  File file = File::open_read(path, waiting);
  const auto too_large = [&] {
    return Error(path + ": larger than " + human_bytes(max_bytes) + ", the most that is read");
  };
  const std::uint64_t expected = file.size();  // 0 for a pipe
  if (expected > max_bytes) throw too_large();
  std::string text;
  // One byte more than expected, so that the end of file is found without growing the buffer.
  std::size_t room = std::max(kPiece, static_cast<std::size_t>(expected) + 1);
  for (;;) {
    if (append_some(file.fd(), path, text, room) == 0) return text;
    if (text.size() > max_bytes) throw too_large();
    room = std::max(kPiece, text.size() / 2);
  }
}

std::string read_text_file(const std::string& path, std::uint64_t max_bytes, const File::Waiting& waiting) {
  std::string text = read_whole_file(path, max_bytes, waiting);
  text.erase(0, text.size() - without_byte_order_mark(text).size());
  return text;
}

}  // namespace fp8
