// Values of JSON that may be missing. Private to the crate.
#pragma once

#include <optional>

#include "fp8/json/value.h"

namespace fp8::log {

// The value; null if there is none.
template <typename T>
json::Value or_null(const std::optional<T>& value) {
  return value ? json::Value(*value) : json::Value();
}

}  // namespace fp8::log
