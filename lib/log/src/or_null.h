// Values of JSON that may be missing. Private to the crate.
#pragma once

#include <optional>
#include <string>

#include "fp8/json/value.h"

namespace fp8::log {

// The value; null if there is none.
template <typename T>
json::Value or_null(const std::optional<T>& value) {
  return value ? json::Value(*value) : json::Value();
}

// The text; null if it is empty.
inline json::Value text_or_null(const std::string& text) { return text.empty() ? json::Value() : json::Value(text); }

}  // namespace fp8::log
