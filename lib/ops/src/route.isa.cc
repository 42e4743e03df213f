// Loops of mixtures of experts over one row, vectorized. Those over activations are bound by memory.
#include <algorithm>
#include <array>
#include <cmath>

#include "route_kernels.h"
#include "vector_math.h"

namespace fp8::ops {
namespace {

using dtype::Bf16;
using dtype::from_float;
using dtype::to_float;

template <class T>
void sum(const RowSum<T>& s, std::int64_t n) {
  constexpr std::int64_t kChunk = 512;
  std::array<float, kChunk> memory;
  float* const sums = memory.data();
  for (std::int64_t begin = 0; begin < n; begin += kChunk) {
    const std::int64_t length = std::min(kChunk, n - begin);
    std::fill(sums, sums + length, 0.0f);
    for (std::int64_t j = 0; j < s.count; ++j) {
      const T* const row = s.matrix + s.rows[j] * n + begin;
      const float weight = s.weights == nullptr ? 1.0f : s.weights[j];
#pragma omp simd
      for (std::int64_t c = 0; c < length; ++c) sums[c] += weight * to_float(row[c]);
    }
    if (s.addend != nullptr) {
      const float* const last = s.addend + begin;
#pragma omp simd
      for (std::int64_t c = 0; c < length; ++c) sums[c] += last[c];
    }
    T* const out = s.out + begin;
#pragma omp simd
    for (std::int64_t c = 0; c < length; ++c) out[c] = from_float<T>(sums[c]);
  }
}

template <class T>
float weighted(const T* d, const T* y, float weight, T* dy, std::int64_t n) {
  const float dot = lane_sum(n, [=](std::int64_t c) { return to_float(d[c]) * to_float(y[c]); });
#pragma omp simd
  for (std::int64_t c = 0; c < n; ++c) dy[c] = from_float<T>(weight * to_float(d[c]));
  return dot;
}

float softmax(const float* x, float* p, std::int64_t n) {
  const float shift = lane_max(n, [=](std::int64_t e) { return x[e]; });
#pragma omp simd
  for (std::int64_t e = 0; e < n; ++e) p[e] = exp_rounded(x[e] - shift);
  const float sum = lane_sum(n, [=](std::int64_t e) { return p[e]; });
#pragma omp simd
  for (std::int64_t e = 0; e < n; ++e) p[e] /= sum;
  return static_cast<float>(static_cast<double>(shift) + std::log(static_cast<double>(sum)));
}

void add_to(const float* x, double* sums, std::int64_t n) {
#pragma omp simd
  for (std::int64_t e = 0; e < n; ++e) sums[e] += static_cast<double>(x[e]);
}

float softmax_gradient(const float* p, const float* d, float offset, float* out, std::int64_t n) {
  if (d == nullptr) {
#pragma omp simd
    for (std::int64_t e = 0; e < n; ++e) out[e] = p[e] * -offset;
    return offset;
  }
  const float all = offset + lane_sum(n, [=](std::int64_t e) { return p[e] * d[e]; });
#pragma omp simd
  for (std::int64_t e = 0; e < n; ++e) out[e] = p[e] * (d[e] - all);
  return all;
}

template <class T>
constexpr RouteLoops<T> kLoops{.sum = sum<T>, .weighted = weighted<T>};

}  // namespace

constinit const RouteKernels FP8_ISA::kRouteKernels{.f32 = kLoops<float>,
                                                    .bf16 = kLoops<Bf16>,
                                                    .softmax = softmax,
                                                    .add_to = add_to,
                                                    .softmax_gradient = softmax_gradient};

}  // namespace fp8::ops
