/// A weight by name, and floats as a file has them, for tests of casts and exports.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

namespace fp8::convert {

/// A weight of the reference models that is cast.
inline constexpr const char* kUpWeight = "model.layers.0.mlp.up_proj.weight";

/// The bytes of floats.
inline std::vector<std::byte> bytes_of_floats(const std::vector<float>& values) {
  std::vector<std::byte> out(values.size() * sizeof(float));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

}  // namespace fp8::convert
