// The only place that converts errno and exceptions of libraries to text.
#include "fp8/base/error.h"

#include <new>
#include <system_error>

namespace fp8 {

Error current_error() {
  try {
    throw;
  } catch (const Error& e) {
    return e;
  } catch (const std::bad_alloc&) {
    return Error("out of memory");
  } catch (const std::exception& e) {
    return Error(std::string("internal error: ") + e.what());
  }
}

void throw_errno(const std::string& path, const std::string& reason, int errno_value) {
  const std::string words = std::generic_category().message(errno_value);
  throw Error(reason.empty() ? path + ": " + words : path + ": " + reason + ": " + words);
}

}  // namespace fp8
