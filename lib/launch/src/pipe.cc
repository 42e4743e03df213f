// System calls of pipes.
#include "pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "fp8/base/error.h"

namespace fp8::launch {
namespace {

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("command", "no pipe", errno);
  return ends;
}

}  // namespace

void Descriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Pipe::Pipe() : Pipe(make_pipe()) {}

Pipe::Pipe(const std::array<int, 2>& ends) : in(ends[0]), out(ends[1]) {
  if (::fcntl(in.get(), F_SETFL, O_NONBLOCK) != 0) throw_errno("command", "no pipe", errno);
}

std::string_view Pipe::read() {
  if (in.get() < 0) return {};
  const ssize_t n = ::read(in.get(), buffer_.data(), buffer_.size());
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return {};
  if (n < 0) throw_errno("command", "its output cannot be read", errno);
  if (n == 0) in.reset();
  return std::string_view(buffer_).substr(0, static_cast<std::size_t>(n));
}

}  // namespace fp8::launch
