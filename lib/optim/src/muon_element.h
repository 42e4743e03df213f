/// The arithmetic of Muon on one element, shared by the host loops and the kernels for identical rounding, as in
/// adamw_element.h. Private to this crate.
#pragma once

#include <cmath>

#include "adamw_element.h"
#include "fp8/optim/muon.h"

namespace fp8::optim {

inline constexpr float kMomentum = 0.95f;              ///< share of the momentum that stays
inline constexpr float kNewShare = 0.05f;              ///< 1 - kMomentum, rounded from double
inline constexpr float kRemainder = 1.0f - kMomentum;  ///< 1 - kMomentum in f32, as torch.lerp has it
inline constexpr double kLeastNorm = 1e-7;             ///< smaller norms are replaced by it

/// Coefficients of one iteration: x becomes kA x + (kB A + kC A A) x, A = x x^T.
inline constexpr float kA = 3.4445f, kB = -4.775f, kC = 2.0315f;
inline constexpr int kIterations = 5;  ///< iterations of an orthogonalization

/// Momentum and direction of one element.
struct Direction {
  float momentum;   ///< lerp(momentum, g, 0.05)
  float direction;  ///< lerp(g, momentum, 0.95)
};

/// The element after one update of its momentum by the clipped gradient g.
FP8_HD inline Direction direction_of(float momentum, float g) {
  const float m = std::fma(kNewShare, g - momentum, momentum);
  return {m, std::fma(-kRemainder, m - g, m)};
}

/// Values shared by all elements of a block, each rounded once from double.
struct MuonCoefficients {
  float keep;  ///< 1 - lr weight_decay; 1 without decay
  float rate;  ///< lr times the factor of the matrix
};

/// Coefficients of one update.
inline MuonCoefficients muon_coefficients(const Settings& settings, const Scalars& scalars, const MuonBlock& block) {
  const auto rows = static_cast<double>(block.rows), columns = static_cast<double>(block.columns);
  const double scale = settings.muon_scale == MuonScale::rms ? 0.2 * std::sqrt(std::fmax(rows, columns))
                                                             : std::sqrt(std::fmax(1.0, rows / columns));
  const double lr = scalars.lr;
  return {.keep = block.decay ? static_cast<float>(1.0 - lr * static_cast<double>(settings.weight_decay)) : 1.0f,
          .rate = static_cast<float>(lr * scale)};
}

/// The master weight after one update.
FP8_HD inline float muon_element(float p, float direction, const MuonCoefficients& c) {
  return std::fma(c.keep, p, -(c.rate * direction));
}

/// a x + b sum, as an iteration combines a product with what it was made of.
FP8_HD inline float combined(float x, float a, float sum, float b) { return std::fma(b, sum, a * x); }

/// The divisor of a matrix whose squares have this sum.
FP8_HD inline float divisor_of(double square_sum) {
  const double norm = std::sqrt(square_sum);
  return static_cast<float>(norm > kLeastNorm ? norm : kLeastNorm);
}

}  // namespace fp8::optim
