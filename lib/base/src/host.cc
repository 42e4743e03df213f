// The name of the machine, by gethostname.
#include "fp8/base/host.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>

#include "fp8/base/error.h"

namespace fp8 {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) throw_errno("host name", "", errno);
  return name.data();
}

}  // namespace fp8
