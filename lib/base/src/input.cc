// One read() per call, repeated if a signal interrupts it.
#include "fp8/base/input.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fp8/base/error.h"
#include "transfer.h"

namespace fp8 {
namespace {

ssize_t read_once(int fd, void* to, std::size_t most) {
  ssize_t n = 0;
  do {
    n = ::read(fd, to, std::min(most, kMostAtOnce));
  } while (n < 0 && errno == EINTR);
  return n;
}

}  // namespace

std::size_t read_some(int fd, const std::string& name, std::span<std::byte> bytes) {
  const ssize_t n = read_once(fd, bytes.data(), bytes.size());
  if (n < 0) throw_errno(name, "cannot read", errno);
  return static_cast<std::size_t>(n);
}

std::size_t append_some(int fd, const std::string& name, std::string& text, std::size_t most) {
  const std::size_t before = text.size();
  text.resize(before + most);
  const ssize_t n = read_once(fd, text.data() + before, most);
  const int error = errno;
  text.resize(before + (n > 0 ? static_cast<std::size_t>(n) : 0));
  if (n < 0) throw_errno(name, "cannot read", error);
  return static_cast<std::size_t>(n);
}

}  // namespace fp8
