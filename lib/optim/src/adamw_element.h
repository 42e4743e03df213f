/// The arithmetic of AdamW on one element, shared by the host loop and the kernel for identical rounding: every
/// multiply-add is an explicit fma, so no contraction is left to the compiler. Callers use adamw().
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "fp8/device/philox.h"
#include "fp8/dtype/element.h"
#include "fp8/optim/adamw.h"

namespace fp8::optim {

/// Values shared by all elements of a block, each rounded once from double.
struct Coefficients {
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
  return {.keep = decay ? static_cast<float>(1.0 - lr * static_cast<double>(settings.weight_decay)) : 1.0f,
          .beta1 = settings.beta1,
          .one_minus_beta1 = static_cast<float>(1.0 - static_cast<double>(settings.beta1)),
          .beta2 = settings.beta2,
          .one_minus_beta2 = static_cast<float>(1.0 - static_cast<double>(settings.beta2)),
          .step_size = static_cast<float>(lr / static_cast<double>(scalars.correction1)),
          .correction2_sqrt = scalars.correction2_sqrt,
          .eps = settings.eps};
}

/// Whether v is neither NaN nor infinite; tests the bits, since compiler options may assume finite math.
FP8_HD inline bool finite(double v) { return (std::bit_cast<std::uint64_t>(v) >> 52 & 0x7FFu) != 0x7FFu; }

/// Computes the gate, see set_gate(); `norm` is the root of the sum of squares.
FP8_HD inline Gate gate_of(double loss, double norm, double clip) {
  const double scale = clip / (norm + 1e-6);
  return {.gradient_scale = clip > 0 ? static_cast<float>(scale < 1.0 ? scale : 1.0) : 1.0f,
          .skip = finite(loss) && finite(norm) ? 0 : 1};
}

/// A parameter and its moments.
struct Element {
  float p;  ///< master weight
  float m;  ///< first moment
  float v;  ///< second moment
};

/// The element after one update by the clipped gradient g: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p = keep p -
/// step_size m / (sqrt(v) / correction2_sqrt + eps).
FP8_HD inline Element adamw_element(Element e, float g, const Coefficients& c) {
  e.m = std::fma(c.beta1, e.m, c.one_minus_beta1 * g);
  e.v = std::fma(c.beta2, e.v, (c.one_minus_beta2 * g) * g);
  const float denominator = std::sqrt(e.v) / c.correction2_sqrt + c.eps;
  e.p = std::fma(c.keep, e.p, -(c.step_size * e.m) / denominator);
  return e;
}

/// Elements that share random counters: kNoiseLanes counters serve kNoiseBlock elements.
inline constexpr std::int64_t kNoiseLanes = 16, kNoiseBlock = 8 * kNoiseLanes;

/// Random bits of one counter, of which noise_word() makes the words of eight elements of a tensor in one update:
/// `lane` + kNoiseLanes s, s from 0 to 7, of the kNoiseBlock elements from kNoiseBlock * `block` on. The low half of an
/// element's word rounds its master, the high half its first moment, the low half of noise_of_v() the second moment.
/// One counter gives eight independent halves r[s]; the three of an element are r[s], r[s] ^ r[s+1] ^ r[s+3] and r[s+1]
/// ^ r[s+3]: sums over sets that all differ, so each is uniform and any two, of any elements, are independent.
FP8_HD inline std::array<std::uint32_t, 4> noise_bits(std::uint64_t seed, std::int64_t update, std::uint32_t tensor,
                                                      std::uint64_t block, std::uint32_t lane) {
  constexpr std::uint64_t kUse = 0x6164616D77000001u;  // separates this stream from other uses of the run's seed
  return device::philox(seed ^ kUse, block * kNoiseLanes + lane, static_cast<std::uint64_t>(update) << 32 | tensor);
}

/// The word of element s from halves s, s + 1 and s + 3.
FP8_HD inline std::uint32_t noise_word(std::uint32_t r0, std::uint32_t r1, std::uint32_t r3) {
  return r0 | (r0 ^ r1 ^ r3) << 16;
}

/// The words of all eight elements.
FP8_HD inline std::array<std::uint32_t, 8> rounding_noise(std::uint64_t seed, std::int64_t update, std::uint32_t tensor,
                                                          std::uint64_t block, std::uint32_t lane) {
  const std::array<std::uint32_t, 4> w = noise_bits(seed, update, tensor, block, lane);
  const std::uint32_t a = w[0] & 0xFFFFu, b = w[0] >> 16, c = w[1] & 0xFFFFu, d = w[1] >> 16;
  const std::uint32_t e = w[2] & 0xFFFFu, f = w[2] >> 16, g = w[3] & 0xFFFFu, h = w[3] >> 16;
  return {noise_word(a, b, d), noise_word(b, c, e), noise_word(c, d, f), noise_word(d, e, g),
          noise_word(e, f, h), noise_word(f, g, a), noise_word(g, h, b), noise_word(h, a, c)};
}

/// Noise of the second moment, in the low half, from an element's word.
FP8_HD inline std::uint32_t noise_of_v(std::uint32_t word) { return word ^ word >> 16; }

/// Stores v as T: a float unchanged, a Bf16 rounded stochastically by the low half of `random`.
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
