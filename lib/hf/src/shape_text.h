/// Shapes of tensors in messages. Private to this crate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fp8::hf {

/// "[2, 3]".
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out;
  for (const std::int64_t extent : shape) out += (out.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + out + "]";
}

}  // namespace fp8::hf
