/// Fast reader of flat objects with identical keys, such as the step records of a log: it builds no values, and returns
/// what parse() returns. It rejects every line that does not match the expected shape; such lines go to parse(). It is
/// worth a second parser: tests/bench/logs.py measures that fp8-log takes 2.0 s of processor time for 1 GB of records
/// with it, and 25 s with nlohmann's parser alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::json {

/// A member's value as written in the text.
struct Scalar {
  Type type = Type::null;    ///< never array or object where Shape::read() made it
  std::string_view text{};   ///< value of a string, a part of the text that was read
  double number = 0;         ///< value of an integer or a real as Value::as_double() has it; 0 or 1 for a boolean
  std::int64_t integer = 0;  ///< value of an integer
};

/// The keys of a flat object, in order.
class Shape {
 public:
  /// The shape of `object`; nothing when the object is empty or contains arrays, objects, or keys with characters that
  /// JSON escapes or that are not ASCII. Numbers are read only for keys for which `wanted` returns true.
  static std::optional<Shape> of(const Object& object, const std::function<bool(const std::string&)>& wanted);

  /// Number of keys.
  std::size_t size() const { return members_.size(); }

  /// Reads an object with exactly these keys in this order into `values` (one per key). True only if parse() accepts
  /// `line` and returns the same values, bit for bit; unwanted numbers stay 0. False means only that parse() must read
  /// the line: other keys, values that are not flat, text with escapes or beyond ASCII, integers of 19 digits, numbers
  /// beyond double, and invalid JSON.
  bool read(std::string_view line, std::span<Scalar> values) const;

 private:
  struct Member {
    std::string key;  // key with its quotes
    bool wanted;
  };
  std::vector<Member> members_;
};

}  // namespace fp8::json
