// The name of the machine, by gethostname, and of its processor, from /proc.
#include "fp8/base/host.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <fstream>

#include "fp8/base/error.h"

namespace fp8 {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) throw_errno("host name", "", errno);
  return name.data();
}

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (const std::size_t colon = line.find(": "); colon != std::string::npos && line.starts_with("model name"))
      return line.substr(colon + 2);
  return "unknown";
}

}  // namespace fp8
