// Inner loops of NVFP4 casts, as templates over element type and rounding, so that the compiler vectorizes each; random
// bits and the Hadamard transform in vectors that fit the registers.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "fp4_kernels.h"
#include "fp8/device/philox.h"
#include "fp8/dtype/e2m1.h"

namespace fp8::quant {
namespace {

// Signs of the transform's input. Source: Transformer Engine, hadamard_transform.
constexpr std::array<float, 16> kSigns = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
constexpr std::int64_t kColumns = 64;  // columns that are transformed together; with 16, loads would wait for stores
#ifdef __AVX512F__
constexpr std::int64_t kLanes = 8;
#else
constexpr std::int64_t kLanes = 4;
#endif
using Doubles [[gnu::vector_size(kLanes * sizeof(double))]] = double;
using Floats [[gnu::vector_size(kLanes * sizeof(float))]] = float;

// Counts of one element, or of few.
struct RowCounts32 {
  std::uint32_t saturated = 0, underflowed = 0;
};

void factors(const float* amax, const Fp4Scales& scales, const Fp4Factors& out, std::int64_t n) {
  constexpr float kMost = std::numeric_limits<float>::max();
#pragma omp simd
  for (std::int64_t b = 0; b < n; ++b) {
    const float rounded = dtype::round_to_grid<dtype::E4m3Grid>(amax[b] * scales.sixth);  // saturates at 448
    const float multiplier = 1.0f / (rounded * scales.inverse);
    out.scale[b] = rounded;
    out.multiplier[b] = multiplier > kMost ? kMost : multiplier;
  }
}

// Words of Philox for four counters, in the lower halves of lanes, which are all that a product reads.
struct PhiloxLanes {
  using Word [[gnu::vector_size(32)]] = std::uint64_t;
  static constexpr std::int64_t kCounters = 4;
  static Word multiply(const Word& a, std::uint32_t b) {
#if defined(__AVX2__)
    return (Word)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(static_cast<long long>(b)));
#else
    return (a & 0xFFFFFFFFu) * std::uint64_t{b};
#endif
  }
  static Word high(const Word& product) { return product >> 32; }
  static Word low(const Word& product) { return product; }
};

// A block of random bytes as two words, the first byte lowest.
struct RandomBlock {
  std::uint64_t low, high;
};
constexpr std::int64_t kBlocks = 16;  // blocks of random bytes that are made together

// The blocks of kBlocks counters.
std::array<RandomBlock, kBlocks> random_blocks(const Fp4Counters& counters, std::int64_t begin) {
  using Word = PhiloxLanes::Word;
  constexpr Word kFirst = {0, 1, 2, 3};
  std::array<RandomBlock, kBlocks> blocks;
  for (std::int64_t b = 0; b < kBlocks; b += PhiloxLanes::kCounters) {
    const Word at = counters.first + (kFirst + static_cast<std::uint64_t>(begin + b)) * counters.step;
    const auto words = device::philox_rounds<PhiloxLanes>(
        counters.seed, {at, at >> 32, Word{} + counters.stream, Word{} + (counters.stream >> 32)});
    const Word low = (words[0] & 0xFFFFFFFFu) | words[1] << 32, high = (words[2] & 0xFFFFFFFFu) | words[3] << 32;
    const Word first = __builtin_shufflevector(low, high, 0, 4, 1, 5),
               second = __builtin_shufflevector(low, high, 2, 6, 3, 7);
    std::memcpy(&blocks[static_cast<std::size_t>(b)], &first, sizeof first);
    std::memcpy(&blocks[static_cast<std::size_t>(b + 2)], &second, sizeof second);
  }
  return blocks;
}

void random_row(const Fp4Counters& counters, std::int64_t n, std::uint8_t* out) {
  for (std::int64_t b = 0; b < n; b += kBlocks) {
    const auto blocks = random_blocks(counters, b);
    std::memcpy(out + b * kFp4Block, blocks.data(),
                static_cast<std::size_t>(std::min(kBlocks, n - b)) * sizeof(RandomBlock));
  }
}

void random_columns(const Fp4Counters& counters, std::int64_t n, std::uint8_t* out) {
  for (std::int64_t b = 0; b < n; b += kBlocks) {
    const auto blocks = random_blocks(counters, b);
    std::array<std::array<std::uint8_t, kFp4Block>, kBlocks> bytes;
    std::array<std::uint8_t, kBlocks * kFp4Block> turned;
    static_assert(sizeof bytes == sizeof blocks);
    std::memcpy(&bytes, blocks.data(), sizeof bytes);
    for (std::size_t i = 0; i < kFp4Block; ++i)
      for (std::size_t c = 0; c < kBlocks; ++c) turned[i * kBlocks + c] = bytes[c][i];
    const auto width = static_cast<std::size_t>(std::min(kBlocks, n - b));
    for (std::int64_t i = 0; i < kFp4Block; ++i) std::memcpy(out + i * n + b, turned.data() + i * kBlocks, width);
  }
}

template <bool kStochastic>
inline std::uint8_t code_of(float scaled, std::uint8_t random) {
  const float a = from_magnitude(magnitude_bits(scaled));
  if constexpr (kStochastic) return dtype::e2m1_code(dtype::round_to_e2m1(a, random), scaled);
  return dtype::e2m1_code(dtype::round_to_e2m1(a), scaled);
}

template <class T, bool kStochastic>
void codes_of(const T* x, const Fp4Factors& factors, const std::uint8_t* random, std::uint8_t* codes, std::int64_t n) {
  const float* const by = factors.multiplier;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    codes[i] = code_of<kStochastic>(dtype::to_float(x[i]) * by[i], kStochastic ? random[i] : std::uint8_t{0});
}

// An element as a rounded magnitude times the scale of its block; adds to the counts.
template <bool kStochastic>
inline Bf16 value_of(float x, float multiplier, float scale, std::uint8_t random, RowCounts32& counts) {
  constexpr float kMost = 7.0f;  // half a spacing above the largest
  const float a = from_magnitude(magnitude_bits(x * multiplier));
  float magnitude;
  if constexpr (kStochastic)
    magnitude = dtype::round_to_e2m1(a, random);
  else
    magnitude = dtype::round_to_e2m1(a);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(magnitude * scale);
  counts.saturated += a > kMost ? 1u : 0u;
  counts.underflowed += bits == 0 && x != 0 ? 1u : 0u;
  return Bf16{static_cast<std::uint16_t>((bits | (std::bit_cast<std::uint32_t>(x) & 0x80000000u)) >> 16)};
}

template <class T, bool kStochastic>
RowCounts values_of(const T* x, const Fp4Factors& factors, const std::uint8_t* random, Bf16* out, std::int64_t n) {
  const float *const by = factors.multiplier, *const scale = factors.scale;
  std::uint32_t saturated = 0, underflowed = 0;
#pragma omp simd reduction(+ : saturated, underflowed)
  for (std::int64_t i = 0; i < n; ++i) {
    RowCounts32 counts;
    out[i] = value_of<kStochastic>(dtype::to_float(x[i]), by[i], scale[i], kStochastic ? random[i] : std::uint8_t{0},
                                   counts);
    saturated += counts.saturated;
    underflowed += counts.underflowed;
  }
  return {.saturated = saturated, .underflowed = underflowed};
}

template <class T>
RowCounts values(const T* x, const Fp4Factors& factors, const std::uint8_t* random, Bf16* out, std::int64_t n) {
  return (random == nullptr ? values_of<T, false> : values_of<T, true>)(x, factors, random, out, n);
}

template <class T>
void codes(const T* x, const Fp4Factors& factors, const std::uint8_t* random, std::uint8_t* codes, std::int64_t n) {
  (random == nullptr ? codes_of<T, false> : codes_of<T, true>)(x, factors, random, codes, n);
}

using Strip = std::array<std::array<float, kColumns>, kFp4Block>;

// Sums and differences of rows that differ in one bit of their index, for each of the four bits, of kLanes columns.
void butterflies(std::array<Doubles, kFp4Block>& v) {
#pragma GCC unroll 4
  for (std::size_t half = 1; half < v.size(); half *= 2)
#pragma GCC unroll 16
    for (std::size_t i = 0; i < v.size(); ++i) {
      if ((i & half) != 0) continue;
      const Doubles a = v[i], b = v[i + half];
      v[i] = a + b;
      v[i + half] = a - b;
    }
}

// v diag(s) H / 4 of each column, sums in f64, rounded to f32.
void transform(Strip& v) {
  for (std::size_t c = 0; c < kColumns; c += kLanes) {
    std::array<Doubles, kFp4Block> sums;
#pragma GCC unroll 16
    for (std::size_t r = 0; r < sums.size(); ++r) {
      Floats from;
      std::memcpy(&from, &v[r][c], sizeof from);
      sums[r] = __builtin_convertvector(from * kSigns[r], Doubles);
    }
    butterflies(sums);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < sums.size(); ++r) {
      const Floats to = __builtin_convertvector(sums[r] * 0.25, Floats);
      std::memcpy(&v[r][c], &to, sizeof to);
    }
  }
}

// hadamard() of n <= kColumns columns.
template <class T>
Magnitude<Bf16> hadamard_of(const T* x, std::int64_t stride, std::int64_t rows, auto n, std::int64_t cols, Bf16* out) {
  Strip v;
  for (std::int64_t r = 0; r < kFp4Block; ++r) {
    auto& row = v[static_cast<std::size_t>(r)];
    if (r >= rows || n < kColumns) row.fill(0);
    for (std::int64_t c = 0; r < rows && c < n; ++c)
      row[static_cast<std::size_t>(c)] = dtype::to_float(x[r * stride + c]);
  }
  transform(v);
  std::array<Magnitude<Bf16>, kColumns> largest{};
  for (std::size_t r = 0; r < v.size(); ++r) {
    std::array<Bf16, kColumns> row;
#pragma omp simd
    for (std::size_t c = 0; c < kColumns; ++c) {
      row[c] = dtype::to_bf16(v[r][c]);
      const Magnitude<Bf16> have = largest[c], is = magnitude_bits(row[c]);
      largest[c] = have < is ? is : have;
    }
    std::memcpy(out + static_cast<std::int64_t>(r) * cols, row.data(), static_cast<std::size_t>(n) * sizeof(Bf16));
  }
  return *std::ranges::max_element(largest);
}

template <class T>
Magnitude<Bf16> hadamard(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t cols, Bf16* out) {
  Magnitude<Bf16> largest = 0;
  for (std::int64_t begin = 0; begin < cols; begin += kColumns) {
    const auto part = [&](auto n) { return hadamard_of(x + begin, stride, rows, n, cols, out + begin); };
    const std::int64_t left = cols - begin;
    largest = std::max(largest, left < kColumns ? part(left) : part(std::integral_constant<std::int64_t, kColumns>{}));
  }
  return largest;
}

template <class T>
constexpr Fp4Loops<T> kLoops{codes<T>, values<T>, hadamard<T>};

}  // namespace

constinit const Fp4Kernels FP8_ISA::kFp4Kernels{factors, random_row, random_columns, kLoops<float>, kLoops<Bf16>};

}  // namespace fp8::quant
