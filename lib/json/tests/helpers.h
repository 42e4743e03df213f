/// What the tests of this crate share.
#pragma once

#include <string>

#include "fp8/json/json.h"
#include "fp8_test.h"

namespace fp8::json {

using test::error_of;

/// The message of parsing `text`, or "no error" when it is good.
inline std::string refusal(std::string_view text, const Limits& limits = {}) {
  return error_of([&] { parse(text, "f", limits); });
}

}  // namespace fp8::json
