// The only place that converts errno to text.
#include "fp8/base/error.h"

#include <system_error>

namespace fp8 {

void throw_errno(const std::string& path, const std::string& reason, int errno_value) {
  const std::string words = std::generic_category().message(errno_value);
  throw Error(reason.empty() ? path + ": " + words : path + ": " + reason + ": " + words);
}

}  // namespace fp8
