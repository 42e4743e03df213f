/// Shared helpers of this crate's tests.
#pragma once

#include <string>

#include "fp8/json/json.h"
#include "fp8_test.h"

namespace fp8::json {

using test::error_of;

/// The error message of parsing `text`, or "no error" when it is valid.
inline std::string refusal(std::string_view text, const Limits& limits = {}) {
  return error_of([&] { parse(text, "f", limits); });
}

}  // namespace fp8::json
