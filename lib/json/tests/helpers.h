/// What the tests of this crate share.
#pragma once

#include <string>

#include "fp8/base/error.h"
#include "fp8/json/json.h"

namespace fp8::json {

/// What `work` throws as Error, or "" when it throws nothing.
template <typename Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

/// The message of parsing `text`, or "" when it is good.
inline std::string refusal(std::string_view text, const Limits& limits = {}) {
  return error_of([&] { parse(text, "f", limits); });
}

}  // namespace fp8::json
