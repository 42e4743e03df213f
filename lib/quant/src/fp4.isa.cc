// Inner loops of NVFP4 casts, as templates over element type and rounding, so that the compiler vectorizes each.
#include <algorithm>
#include <array>
#include <limits>

#include "fp4_kernels.h"
#include "fp8/dtype/e2m1.h"

namespace fp8::quant {
namespace {

// Signs of the transform's input. Source: Transformer Engine, hadamard_transform.
constexpr std::array<double, 16> kSigns = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
constexpr std::int64_t kColumns = 16;  // columns that are transformed together

void factors(const float* amax, const Fp4Scales& scales, const Fp4Factors& out, std::int64_t n) {
  constexpr float kMost = std::numeric_limits<float>::max();
#pragma omp simd
  for (std::int64_t b = 0; b < n; ++b) {
    const float scale = amax[b] * scales.sixth,
                rounded = dtype::round_to_grid<dtype::E4m3Grid>(scale);  // saturates at 448
    const float multiplier = 1.0f / (rounded * scales.inverse);
    out.codes[b] = static_cast<std::uint8_t>(dtype::code_bits<dtype::E4m3Grid>(scale));
    out.multiplier[b] = multiplier > kMost ? kMost : multiplier;
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
constexpr Fp4Loops<T> kLoops{blocks<T>, columns<T>, hadamard<T>};

}  // namespace

constinit const Fp4Kernels FP8_ISA::kFp4Kernels{factors, kLoops<float>, kLoops<Bf16>};

}  // namespace fp8::quant
