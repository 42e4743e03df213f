// Loops over one row with the arithmetic of elements.h, vectorized. All but cross-entropy are bound by memory.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "elements.h"
#include "fp8/ops/elementwise.h"
#include "row_kernels.h"

namespace fp8::ops {
namespace {

using dtype::Bf16;
using dtype::from_float;
using dtype::to_float;

template <class A, class B>
void convert(const A* x, B* out, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = from_float<B>(to_float(x[i]));
}

template <class T>
void add(const T* a, const T* b, T* out, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
}

template <class T>
void add_to(const T* x, float* sums, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) sums[i] += to_float(x[i]);
}

template <class T>
std::uint32_t largest(const T* x, std::int64_t n, std::uint32_t limit) {
  std::uint32_t most = 0;
#pragma omp simd reduction(max : most)
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(to_float(x[i])) & 0x7FFFFFFFu;
    const std::uint32_t counted = magnitude <= limit ? magnitude : 0;
    most = counted > most ? counted : most;
  }
  return most;
}

template <class T>
void swiglu(const T* gate, const T* up, T* out, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = swiglu_output(gate[i], up[i]);
}

template <class T>
void swiglu_backward(const T* d, const T* gate, const T* up, T* d_gate, T* d_up, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) swiglu_gradients(d[i], gate[i], up[i], d_gate[i], d_up[i]);
}

template <class T>
void rotate_heads(T* x, std::int64_t heads, std::int64_t stride, const float* cos, const float* sin, float sign,
                  std::int64_t half) {
  for (std::int64_t h = 0; h < heads; ++h) {
    T *lower = x + h * stride, *upper = lower + half;
#pragma omp simd
    for (std::int64_t i = 0; i < half; ++i) rotate(lower[i], upper[i], cos[i], sign * sin[i]);
  }
}

// Sum of squares in PyTorch's order: four adjacent vectors of eight lanes, added to a second level of sums every 16
// rounds, and to a third every 256; then the remaining vectors, the remaining elements, and the lanes one by one. Codes
// at rounding ties are therefore the same as in PyTorch, and the error grows with the logarithm of n. Source: the
// cascade sum of ATen's SumKernel.cpp.
template <class T>
float square_sum(const T* x, std::int64_t n) {
  constexpr int kVector = 8, kSide = 4 * kVector;
  constexpr std::int64_t kFold = 16;
  std::array<float, kSide> sum{}, folded{}, twice{};
  const auto fold = [](std::array<float, kSide>& from, std::array<float, kSide>& to) {
    for (std::size_t j = 0; j < kSide; ++j) to[j] += from[j];
    from.fill(0);
  };
  const auto square = [x](std::int64_t i) { return to_float(x[i]) * to_float(x[i]); };
  const std::int64_t rounds = n / kSide, vectors = n / kVector;
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma omp simd
    for (int j = 0; j < kSide; ++j) sum[static_cast<std::size_t>(j)] += square(r * kSide + j);
    if ((r + 1) % kFold == 0) fold(sum, folded);
    if ((r + 1) % (kFold * kFold) == 0) fold(folded, twice);
  }
  fold(folded, sum);
  fold(twice, sum);
  for (std::int64_t v = rounds * 4; v < vectors; ++v) {
#pragma omp simd
    for (int j = 0; j < kVector; ++j) sum[static_cast<std::size_t>(j)] += square(v * kVector + j);
  }
  float total = 0;
  for (std::int64_t i = vectors * kVector; i < n; ++i) total += square(i);
  for (std::size_t j = 0; j < kVector; ++j) total += ((sum[j] + sum[j + 8]) + sum[j + 16]) + sum[j + 24];
  return total;
}

template <class T>
float norm(const T* x, const T* weight, float eps, T* y, std::int64_t n) {
  const float rstd = 1.0f / std::sqrt(square_sum(x, n) / static_cast<float>(n) + eps);
#pragma omp simd
  for (std::int64_t c = 0; c < n; ++c) y[c] = norm_output(x[c], rstd, weight[c]);
  return rstd;
}

template <class T>
void norm_backward(const NormGradientRow<T>& row, std::int64_t n) {
  const auto [dy, x, weight, upstream, dx, dweight, rstd] = row;
  const float mean =
      lane_sum(n, [=](std::int64_t c) { return norm_dot(dy[c], x[c], weight[c], rstd); }) / static_cast<float>(n);
  if (dweight != nullptr) {
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c) dweight[c] += to_float(dy[c]) * normalized(x[c], rstd);
  }
  if (upstream != nullptr) {
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c)
      dx[c] = from_float<T>(norm_gradient(dy[c], x[c], weight[c], rstd, mean) + to_float(upstream[c]));
  } else {
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c) dx[c] = from_float<T>(norm_gradient(dy[c], x[c], weight[c], rstd, mean));
  }
}

// Sum of exp(x - shift): chunks in f32, their sums in f64, so that the error does not grow with the vocabulary.
template <class T>
double sum_of_exp(const T* x, std::int64_t n, float shift) {
  constexpr std::int64_t kChunk = 1024;
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kChunk) {
    const std::int64_t end = std::min(n, begin + kChunk);
    total += static_cast<double>(
        lane_sum(end - begin, [=](std::int64_t c) { return exp_for<T>(to_float(x[begin + c]) - shift); }));
  }
  return total;
}

template <class T>
float largest_logit(const T* x, std::int64_t n) {
  return lane_max(n, [=](std::int64_t c) { return to_float(x[c]); });
}

template <class T>
void logit_gradients(T* x, std::int64_t n, float shift, float factor) {
#pragma omp simd
  for (std::int64_t c = 0; c < n; ++c) x[c] = logit_gradient(x[c], shift, factor);
}

// Maximum, sum of exponentials and gradient in three passes, while the row is in the cache.
template <class T>
float cross_entropy(T* x, std::int64_t n, std::int32_t target, float scale, bool backward) {
  if (target == kIgnoredTarget) {
    if (backward) std::fill(x, x + n, from_float<T>(0.0f));
    return 0.0f;
  }
  const float shift = largest_logit(x, n);
  const double sum = sum_of_exp(x, n, shift);
  const float difference = to_float(x[target]) - shift;
  const auto inverse = static_cast<float>(1.0 / sum);
  if (backward) {
    logit_gradients(x, n, shift, inverse * scale);
    x[target] = target_gradient<T>(difference, inverse, scale);
  }
  return static_cast<float>(std::log(sum) - static_cast<double>(difference));
}

template <class T>
constexpr RowLoops<T> kLoops{.to_f32 = convert<T, float>,
                             .to_bf16 = convert<T, Bf16>,
                             .add = add<T>,
                             .add_to = add_to<T>,
                             .largest = largest<T>,
                             .swiglu = swiglu<T>,
                             .swiglu_gradients = swiglu_backward<T>,
                             .rotate = rotate_heads<T>,
                             .norm = norm<T>,
                             .norm_gradient = norm_backward<T>,
                             .cross_entropy = cross_entropy<T>,
                             .largest_logit = largest_logit<T>,
                             .sum_of_exp = sum_of_exp<T>,
                             .logit_gradients = logit_gradients<T>};

}  // namespace

constinit const RowKernels FP8_ISA::kRowKernels{kLoops<float>, kLoops<Bf16>};

}  // namespace fp8::ops
