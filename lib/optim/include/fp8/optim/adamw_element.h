/// The arithmetic of AdamW on one element, shared by the host's loop and a kernel, so that both round alike: every
/// product that is added is an explicit fma, nothing is left to the compiler. Not for callers: they use adamw().
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "fp8/device/philox.h"
#include "fp8/dtype/element.h"
#include "fp8/optim/adamw.h"

namespace fp8::optim {

/// What all elements of a block share, each rounded once from double.
struct Coefficients {
  float gradient_scale;    ///< clipping
  float keep;              ///< 1 - lr weight_decay; 1 without decay
  float beta1;             ///< decay of the first moment
  float one_minus_beta1;   ///< 1 - beta1
  float beta2;             ///< decay of the second moment
  float one_minus_beta2;   ///< 1 - beta2
  float step_size;         ///< lr / (1 - beta1^t)
  float correction2_sqrt;  ///< sqrt(1 - beta2^t)
  float eps;               ///< added to the root of the second moment
};

/// Coefficients of one update.
inline Coefficients coefficients_of(const Settings& settings, const Scalars& scalars, bool decay) {
  const double lr = scalars.lr;
  return {.gradient_scale = scalars.gradient_scale,
          .keep = decay ? static_cast<float>(1.0 - lr * static_cast<double>(settings.weight_decay)) : 1.0f,
          .beta1 = settings.beta1,
          .one_minus_beta1 = static_cast<float>(1.0 - static_cast<double>(settings.beta1)),
          .beta2 = settings.beta2,
          .one_minus_beta2 = static_cast<float>(1.0 - static_cast<double>(settings.beta2)),
          .step_size = static_cast<float>(lr / static_cast<double>(scalars.correction1)),
          .correction2_sqrt = scalars.correction2_sqrt,
          .eps = settings.eps};
}

/// A parameter and its moments.
struct Element {
  float p;  ///< master weight
  float m;  ///< first moment
  float v;  ///< second moment
};

/// The element after one update: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p = keep p - step_size m / (sqrt(v) /
/// correction2_sqrt + eps).
FP8_HD inline Element adamw_element(Element e, float gradient, const Coefficients& c) {
  const float g = gradient * c.gradient_scale;
  e.m = std::fma(c.beta1, e.m, c.one_minus_beta1 * g);
  e.v = std::fma(c.beta2, e.v, (c.one_minus_beta2 * g) * g);
  const float denominator = std::sqrt(e.v) / c.correction2_sqrt + c.eps;
  e.p = std::fma(c.keep, e.p, -(c.step_size * e.m) / denominator);
  return e;
}

/// Random words for the elements 2 pair and 2 pair + 1 of a tensor in one update: two words each. The low half of an
/// element's first word rounds its master, the high half its first moment, its second word the second moment.
FP8_HD inline std::array<std::uint32_t, 4> rounding_noise(std::uint64_t seed, std::int64_t update, std::uint32_t tensor,
                                                          std::uint64_t pair) {
  constexpr std::uint64_t kUse = 0x6164616D77000001u;  // keeps these apart from other uses of the run's seed
  return device::philox(seed ^ kUse, pair, static_cast<std::uint64_t>(update) << 32 | tensor);
}

/// Stores v as T: a float as it is, a Bf16 rounded stochastically by the low half of `random`.
template <class T>
FP8_HD inline T store_rounded(float v, std::uint32_t random);
template <>
FP8_HD inline float store_rounded<float>(float v, std::uint32_t) {
  return v;
}
template <>
FP8_HD inline dtype::Bf16 store_rounded<dtype::Bf16>(float v, std::uint32_t random) {
  return dtype::to_bf16_stochastic(v, random);
}

}  // namespace fp8::optim
