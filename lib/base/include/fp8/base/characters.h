/// Characters of a text in UTF-8 as tables and drawings count them: each takes a column.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace fp8 {

/// Whether a byte of UTF-8 begins a character: it does not go on with one.
constexpr bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80; }

/// Number of characters.
inline std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

}  // namespace fp8
