/// Safetensors files from text, malformed ones included.
#pragma once

#include <string>

namespace fp8::hf {

/// Bytes of a safetensors file with this header and data.
inline std::string safetensors(const std::string& header, const std::string& data = "") {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i));
  return out + header + data;
}

}  // namespace fp8::hf
