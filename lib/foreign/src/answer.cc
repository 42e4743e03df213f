#include "fp8/foreign/answer.h"

#include <array>

namespace fp8::foreign {

std::string_view name_of(Class c) {
  static constexpr std::array<std::string_view, 6> kNames = {"mapped",  "default",        "no effect",
                                                             "differs", "no counterpart", "does nothing"};
  return kNames.at(static_cast<std::size_t>(c));
}

}  // namespace fp8::foreign
