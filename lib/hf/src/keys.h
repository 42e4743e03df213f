/// Checked access to the values of a JSON object. Private to this crate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "fp8/json/value.h"

namespace fp8::hf {

/// Limits of config.json and of PEFT's adapter_config.json.
inline constexpr json::Limits kConfigLimits{.max_depth = 64, .max_bytes = std::size_t{16} << 20U};

/// One object of an untrusted file, with range checks on its values. Keys that are null count as missing.
class Keys {
 public:
  Keys(const json::Object& object, std::string what) : object_(object), what_(std::move(what)) {}

  [[noreturn]] void fail(const std::string& reason) const { throw Error(what_ + ": " + reason); }

  const json::Value* find(std::string_view key) const {
    const json::Value* v = object_.find(key);
    return v != nullptr && !v->is_null() ? v : nullptr;
  }
  bool is_absent(std::string_view key) const { return !object_.contains(key); }
  bool boolean(std::string_view key, bool fallback) const { return object_.get_bool_or(key, fallback, what_); }
  std::string text(std::string_view key, std::string_view fallback) const {
    return object_.get_string_or(key, fallback, what_);
  }
  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t min, std::int64_t max) const {
    const std::int64_t v = object_.get_int_or(key, fallback, what_);
    if (v < min || v > max) range_error(key, std::to_string(v), std::to_string(min), std::to_string(max));
    return v;
  }
  double number(std::string_view key, double fallback, double min, double max) const {
    const double v = object_.get_double_or(key, fallback, what_);
    if (!(v >= min && v <= max)) range_error(key, format_double(v), format_double(min), format_double(max));
    return v;
  }
  const std::string& what() const { return what_; }

 private:
  [[noreturn]] void range_error(std::string_view key, const std::string& value, const std::string& min,
                                const std::string& max) const {
    fail("\"" + std::string(key) + "\" is " + value + ", must be from " + min + " to " + max);
  }

  const json::Object& object_;
  std::string what_;
};

}  // namespace fp8::hf
