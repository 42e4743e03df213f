// Columns of text. Private to the crate.
#pragma once

#include <algorithm>
#include <string>

namespace fp8::plot {

// A text with blanks before it, so that it is `width` wide if it is not longer.
inline std::string aligned_right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

}  // namespace fp8::plot
