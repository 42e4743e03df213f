/// What logits say about a token at other temperatures, without the logits: the log-probability of a token under
/// softmax(b z) for inverse temperatures b on a grid, from which a cubic interpolates. On the host.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace fp8::judge {

/// Grid of inverse temperatures: b = (j + 2) / 8, from 0.25 to 2.5.
inline constexpr int kGrid = 19;

/// The inverse temperature of a node of the grid.
inline double inverse_temperature(int node) { return (node + 2) / 8.0; }

/// The log-probability of one token over the grid.
struct TokenGrid {
  std::array<float, kGrid> value{};  ///< log softmax(b z) of the token
  std::array<float, kGrid> slope{};  ///< its derivative with respect to b

  /// The value at any b, which is first moved to the ends of the grid where it is outside. The error of the
  /// interpolation is h^4 / 384 times the fourth derivative, with h = 1/8.
  double at(double b) const;
};

/// The grid of the token `id` from its logits.
TokenGrid grid_of(std::span<const float> logits, std::int32_t id);

/// log softmax(b z) of the token `id`, summed in f64.
double tempered(std::span<const float> logits, std::int32_t id, double b);

}  // namespace fp8::judge
