/// Pipes from commands and worker processes.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace fp8::launch {

/// Owns a file descriptor.
class Descriptor {
 public:
  /// Adopts `fd`; -1 for none.
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  /// The descriptor, still owned by this object; -1 for none.
  int get() const { return fd_; }
  /// Closes it.
  void reset();

 private:
  int fd_;
};

/// A pipe with close-on-exec ends, whose read end is non-blocking.
class Pipe {
 public:
  /// Throws Error when a system call fails.
  Pipe();

  /// Read end; closed by read() after the last byte.
  Descriptor in;
  /// Write end.
  Descriptor out;

  /// The bytes that are available, at most 64 KiB; empty without any and at the end. Valid until the next call. Throws
  /// Error when the pipe cannot be read.
  std::string_view read();

 private:
  explicit Pipe(const std::array<int, 2>& ends);
  std::string buffer_ = std::string(std::size_t{1} << 16U, '\0');
};

}  // namespace fp8::launch
