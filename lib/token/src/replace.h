/// Replace, a normalizer and a decoder: replaces each match of a pattern by a text.
#pragma once

#include <string>
#include <string_view>

#include "expression.h"
#include "fp8/json/value.h"

namespace fp8::token {

/// Bound on the length, in bytes, of what all steps of a normalizer or decoder make of `bytes` bytes: replacements of
/// replacements multiply.
constexpr std::size_t most_after_replacing(std::size_t bytes) { return 256 * bytes + 4096; }

/// A pattern and its replacement.
class Replace {
 public:
  /// Reads a part of type Replace. Throws Error `what: reason`, also for an expression that matches an empty string.
  Replace(const json::Object& part, const std::string& what);

  /// Appends `text` with all matches replaced. Throws Error when `out` becomes longer than `most` bytes.
  void append(std::string& out, std::string_view text, Matcher& matcher, std::size_t most) const;
  /// Whether the pattern is one character.
  bool one_character() const { return one_character_; }

 private:
  std::string content_;
  Expression pattern_;
  bool one_character_;
};

}  // namespace fp8::token
