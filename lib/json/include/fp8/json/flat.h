/// Flat objects that look alike, such as the step records of a log, read without building values: several times faster
/// than parse(), with the same answers. Not a parser: what does not look as expected is left to parse().
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

/// A member's value as it stands in the text.
struct Scalar {
  Type type = Type::null;    ///< never array or object where Shape::read() made it
  std::string_view text{};   ///< of a string; it points into the text that was read
  double number = 0;         ///< of an integer or a real as Value::as_double() has it; of a boolean 0 or 1
  std::int64_t integer = 0;  ///< of an integer
};

/// The keys of a flat object, in their order.
class Shape {
 public:
  /// The shape of `object`; nothing when it holds arrays or objects, nothing at all, or keys with characters that JSON
  /// would escape or that are not ASCII. `wanted` says of which keys the numbers are asked for.
  static std::optional<Shape> of(const Object& object, const std::function<bool(const std::string&)>& wanted);

  /// Number of keys.
  std::size_t size() const { return members_.size(); }

  /// Reads an object with exactly these keys in this order into `values` (as many as there are keys). True only where
  /// parse() accepts `line` and finds the same values, bit for bit; numbers that are not wanted stay 0. False says
  /// nothing about the line, but that parse() should look at it: for other keys, values that are not flat, text with
  /// escapes or beyond ASCII, integers of 19 digits, numbers beyond double, and all that is no JSON.
  bool read(std::string_view line, std::span<Scalar> values) const;

 private:
  struct Member {
    std::string key;  // with its quotes
    bool wanted;
  };
  std::vector<Member> members_;
};

}  // namespace fp8::json
