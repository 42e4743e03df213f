/// Counter-based random numbers, Philox 4x32-10: a number is a function of a key and a counter, so it is independent of
/// threads, ranks and the order of calls. Used by host loops and kernels. Not for cryptography. Source: Salmon et al.,
/// "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define FP8_HD_DEVICE __host__ __device__
#else
#define FP8_HD_DEVICE
#endif

namespace fp8::device {

/// Ten rounds over a 128-bit counter with a 64-bit key; four random words.
FP8_HD_DEVICE inline std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low,
                                                         std::uint64_t counter_high) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  std::uint32_t c0 = static_cast<std::uint32_t>(counter_low), c1 = static_cast<std::uint32_t>(counter_low >> 32),
                c2 = static_cast<std::uint32_t>(counter_high), c3 = static_cast<std::uint32_t>(counter_high >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

/// A float in (0, 1] from 32 random bits (24 kept).
FP8_HD_DEVICE inline float unit_interval(std::uint32_t bits) { return static_cast<float>((bits >> 8) + 1) * 0x1p-24f; }

/// Two independent normal(0, 1) values from two words (Box-Muller, in double so that math libraries agree after
/// rounding to float).
inline std::array<float, 2> normal_pair(std::uint32_t a, std::uint32_t b) {
  const double r = std::sqrt(-2.0 * std::log((static_cast<double>(a) + 1.0) * 0x1p-32));
  const double t = 6.283185307179586476925 * (static_cast<double>(b) * 0x1p-32);
  return {static_cast<float>(r * std::cos(t)), static_cast<float>(r * std::sin(t))};
}

}  // namespace fp8::device
