// Inner loops of NVFP4 casts, as templates over element type and rounding, so that the compiler vectorizes each.
#include <algorithm>
#include <array>
#include <limits>

#include "fp4_kernels.h"
#include "fp8/device/philox.h"
#include "fp8/dtype/e2m1.h"

namespace fp8::quant {
namespace {

// Signs of the transform's input. Source: Transformer Engine, hadamard_transform.
constexpr std::array<double, 16> kSigns = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
constexpr std::int64_t kColumns = 16;  // columns that are transformed together

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

// Ten rounds of Philox for kBlocks counters together.
void random_bytes(const Fp4Counters& counters, std::int64_t n, std::int64_t across, std::int64_t along,
                  std::uint8_t* out) {
  constexpr std::size_t kBlocks = 16;
  std::array<std::array<std::uint32_t, kBlocks>, 4> words;
#pragma omp simd
  for (std::size_t b = 0; b < kBlocks; ++b) {
    const auto four = device::philox(counters.seed, counters.first + b * counters.step, counters.stream);
    for (std::size_t w = 0; w < 4; ++w) words[w][b] = four[w];
  }
  for (std::int64_t i = 0; i < kFp4Block; ++i) {
    const auto& word = words[static_cast<std::size_t>(i / 4)];
    const std::int64_t shift = i % 4 * 8;
    for (std::int64_t b = 0; b < n; ++b)
      out[b * across + i * along] = static_cast<std::uint8_t>(word[static_cast<std::size_t>(b)] >> shift);
  }
}

template <bool kStochastic>
inline std::uint8_t code_of(float scaled, std::uint8_t random) {
  const float a = from_magnitude(magnitude_bits(scaled));
  if constexpr (kStochastic) return dtype::e2m1_code(dtype::round_to_e2m1(a, random), scaled);
  return dtype::e2m1_code(dtype::round_to_e2m1(a), scaled);
}

template <class T, bool kStochastic>
void blocks_of(const T* x, const float* multiplier, const std::uint8_t* random, std::uint8_t* codes, std::int64_t n) {
  for (std::int64_t begin = 0, b = 0; begin < n; begin += kFp4Block, ++b) {
    const float by = multiplier[b];
#pragma omp simd
    for (std::int64_t i = begin; i < begin + kFp4Block; ++i)
      codes[i] = code_of<kStochastic>(dtype::to_float(x[i]) * by, kStochastic ? random[i] : std::uint8_t{0});
  }
}

template <class T, bool kStochastic>
void columns_of(const T* x, const float* multiplier, const std::uint8_t* random, std::uint8_t* codes, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    codes[i] = code_of<kStochastic>(dtype::to_float(x[i]) * multiplier[i], kStochastic ? random[i] : std::uint8_t{0});
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
RowCounts block_values_of(const T* x, const Fp4Factors& factors, const std::uint8_t* random, Bf16* out,
                          std::int64_t n) {
  std::uint32_t saturated = 0, underflowed = 0;
  for (std::int64_t begin = 0, b = 0; begin < n; begin += kFp4Block, ++b) {
    const float by = factors.multiplier[b], scale = factors.scale[b];
#pragma omp simd reduction(+ : saturated, underflowed)
    for (std::int64_t i = begin; i < begin + kFp4Block; ++i) {
      RowCounts32 counts;
      out[i] =
          value_of<kStochastic>(dtype::to_float(x[i]), by, scale, kStochastic ? random[i] : std::uint8_t{0}, counts);
      saturated += counts.saturated;
      underflowed += counts.underflowed;
    }
  }
  return {.saturated = saturated, .underflowed = underflowed};
}

template <class T, bool kStochastic>
RowCounts column_values_of(const T* x, const Fp4Factors& factors, const std::uint8_t* random, Bf16* out,
                           std::int64_t n) {
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
RowCounts block_values(const T* x, const Fp4Factors& factors, const std::uint8_t* random, Bf16* out, std::int64_t n) {
  return (random == nullptr ? block_values_of<T, false> : block_values_of<T, true>)(x, factors, random, out, n);
}

template <class T>
RowCounts column_values(const T* x, const Fp4Factors& factors, const std::uint8_t* random, Bf16* out, std::int64_t n) {
  return (random == nullptr ? column_values_of<T, false> : column_values_of<T, true>)(x, factors, random, out, n);
}

template <class T>
void blocks(const T* x, const float* multiplier, const std::uint8_t* random, std::uint8_t* codes, std::int64_t n) {
  if (random == nullptr) return blocks_of<T, false>(x, multiplier, random, codes, n);
  blocks_of<T, true>(x, multiplier, random, codes, n);
}

template <class T>
void columns(const T* x, const float* multiplier, const std::uint8_t* random, std::uint8_t* codes, std::int64_t n) {
  if (random == nullptr) return columns_of<T, false>(x, multiplier, random, codes, n);
  columns_of<T, true>(x, multiplier, random, codes, n);
}

using Strip = std::array<std::array<double, kColumns>, 16>;

// Sums and differences of rows that differ in one bit of their index, for each of the four bits.
void butterflies(Strip& v) {
  for (std::size_t half = 1; half < v.size(); half *= 2)
    for (std::size_t i = 0; i < v.size(); ++i) {
      if ((i & half) != 0) continue;
#pragma omp simd
      for (std::size_t c = 0; c < kColumns; ++c) {
        const double a = v[i][c], b = v[i + half][c];
        v[i][c] = a + b;
        v[i + half][c] = a - b;
      }
    }
}

template <class T>
void hadamard(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t cols, Bf16* out) {
  for (std::int64_t begin = 0; begin < cols; begin += kColumns) {
    const std::int64_t n = std::min(kColumns, cols - begin);
    Strip v{};
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < n; ++c)
        v[static_cast<std::size_t>(r)][static_cast<std::size_t>(c)] =
            static_cast<double>(dtype::to_float(x[r * stride + begin + c])) * kSigns[static_cast<std::size_t>(r)];
    butterflies(v);
    for (std::int64_t r = 0; r < kFp4Block; ++r)
      for (std::int64_t c = 0; c < n; ++c)
        out[r * cols + begin + c] =
            dtype::to_bf16(static_cast<float>(v[static_cast<std::size_t>(r)][static_cast<std::size_t>(c)] * 0.25));
  }
}

template <class T>
constexpr Fp4Loops<T> kLoops{blocks<T>, columns<T>, block_values<T>, column_values<T>, hadamard<T>};

}  // namespace

constinit const Fp4Kernels FP8_ISA::kFp4Kernels{factors, random_bytes, kLoops<float>, kLoops<Bf16>};

}  // namespace fp8::quant
