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

/// Words of 32 bits and products of 64 for philox_rounds().
struct PhiloxWords {
  using Word = std::uint32_t;  ///< a word, or several
  /// The product.
  static FP8_HD_DEVICE std::uint64_t multiply(std::uint32_t a, std::uint32_t b) { return std::uint64_t{a} * b; }
  /// The upper half of a product.
  static FP8_HD_DEVICE std::uint32_t high(std::uint64_t product) { return static_cast<std::uint32_t>(product >> 32); }
  /// The lower half of a product.
  static FP8_HD_DEVICE std::uint32_t low(std::uint64_t product) { return static_cast<std::uint32_t>(product); }
};

/// Ten rounds over the words of a 128-bit counter, the lowest first, with a 64-bit key; four random words.
///   Arithmetic  PhiloxWords, or the same of vectors, for many counters at a time
template <class Arithmetic>
FP8_HD_DEVICE inline std::array<typename Arithmetic::Word, 4> philox_rounds(
    std::uint64_t key, std::array<typename Arithmetic::Word, 4> c) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  typename Arithmetic::Word c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3];
  for (int round = 0; round < 10; ++round) {
    const auto p0 = Arithmetic::multiply(c0, 0xD2511F53u), p1 = Arithmetic::multiply(c2, 0xCD9E8D57u);
    c0 = Arithmetic::high(p1) ^ c1 ^ k0;
    c2 = Arithmetic::high(p0) ^ c3 ^ k1;
    c1 = Arithmetic::low(p1);
    c3 = Arithmetic::low(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

/// Four random words of a 64-bit key and a 128-bit counter.
FP8_HD_DEVICE inline std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low,
                                                         std::uint64_t counter_high) {
  return philox_rounds<PhiloxWords>(
      key, {static_cast<std::uint32_t>(counter_low), static_cast<std::uint32_t>(counter_low >> 32),
            static_cast<std::uint32_t>(counter_high), static_cast<std::uint32_t>(counter_high >> 32)});
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
