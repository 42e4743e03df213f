// The check of names of files.
#include "fp8/base/file_name.h"

namespace fp8 {

bool is_bare_name(std::string_view name) {
  return !name.empty() && name != "." && name.find("..") == std::string_view::npos &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace fp8
