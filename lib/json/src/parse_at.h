/// Parsing of a piece of a larger text, with line numbers of the whole text in errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fp8/json/json.h"

namespace fp8::json {

/// Largest line of JSON Lines, and largest record of an array that is read record by record.
inline constexpr std::size_t kLongestRecord = std::size_t{64} << 20U;

/// Bytes of input that are read at a time.
inline constexpr std::size_t kReadPiece = std::size_t{1} << 16U;

/// Parses like parse() a text that begins at line `first_line` of `name`.
Value parse_at(std::string_view text, const std::string& name, std::uint64_t first_line, const Limits& limits);

}  // namespace fp8::json
