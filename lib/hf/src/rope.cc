// Rope frequencies, step by step in float32 as in transformers (only the power is computed in double and rounded).
#include <cmath>
#include <numbers>

#include "fp8/hf/config.h"

namespace fp8::hf {
namespace {

// Long wavelengths are scaled by `factor`, short ones unchanged, those between interpolated.
float llama3_scaled(float frequency, const Rope& rope) {
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto high = static_cast<float>(rope.high_freq_factor);
  const auto original = static_cast<float>(rope.original_max_position_embeddings);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wavelength > original / low) return frequency / factor;
  if (wavelength < original / high) return frequency;
  const float smooth = (original / wavelength - low) / static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  return (1.0F - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::vector<double> rope_inv_freq(const ModelConfig& config) {
  const Rope& rope = config.rope;
  std::vector<double> out;
  for (std::int64_t i = 0; i < config.head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(config.head_dim);
    const float base = static_cast<float>(rope.theta);
    const auto power = static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
    float frequency = 1.0F / power;
    if (rope.type == RopeType::linear) frequency /= static_cast<float>(rope.factor);
    if (rope.type == RopeType::llama3) frequency = llama3_scaled(frequency, rope);
    out.push_back(static_cast<double>(frequency));
  }
  return out;
}

}  // namespace fp8::hf
