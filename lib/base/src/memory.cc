// Resident memory from /proc/self/status, and its peak from getrusage() where that file lacks it.
#include "fp8/base/memory.h"

#include <sys/resource.h>

#include <fstream>
#include <optional>
#include <string>

#include "fp8/base/text.h"

namespace fp8 {
namespace {

// The value of a line of /proc/self/status, such as "VmRSS:", in bytes; nothing if there is no such line.
std::optional<std::int64_t> status_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name, 0) != 0) continue;
    const std::size_t begin = line.find_first_of("0123456789");
    if (begin == std::string::npos) return std::nullopt;
    const auto kib = parse_int64(line.substr(begin, line.find(' ', begin) - begin));
    if (kib) return *kib * 1024;
  }
  return std::nullopt;
}

}  // namespace

std::int64_t resident_memory() { return status_bytes("VmRSS:").value_or(0); }

std::int64_t peak_resident_memory() {
  if (const auto peak = status_bytes("VmHWM:")) return *peak;
  rusage u{};  // includes the peak of the program that started this one
  if (getrusage(RUSAGE_SELF, &u) != 0) return 0;
  return static_cast<std::int64_t>(u.ru_maxrss) * 1024;
}

}  // namespace fp8
