// Attention of one query: all scores, their softmax, then the weighted sum of the values. Bound by memory: each key and
// value is read once.
#include "attention_cached.h"

#include <algorithm>

#include "vector_math.h"

namespace fp8::ops {
namespace {

using dtype::Bf16;
using dtype::from_float;
using dtype::to_float;

template <class T>
void attend(const CachedQuery<T>& c) {
  float* const scores = c.scratch;
  float* const query = scores + c.keys;
  float* const sum = query + c.dim;
  for (std::int64_t d = 0; d < c.dim; ++d) query[d] = to_float(c.q[d]);
  for (std::int64_t j = 0; j < c.keys; ++j) {
    const T* const key = c.k + j * c.key_stride;
    scores[j] = c.scale * lane_sum(c.dim, [=](std::int64_t d) { return query[d] * to_float(key[d]); });
  }
  const float highest = *std::max_element(scores, scores + c.keys);
#pragma omp simd
  for (std::int64_t j = 0; j < c.keys; ++j) scores[j] = exp_for<T>(scores[j] - highest);
  double total = 0;
  for (std::int64_t j = 0; j < c.keys; ++j) total += static_cast<double>(scores[j]);
  const auto inverse = static_cast<float>(1.0 / total);
  std::fill(sum, sum + c.dim, 0.0f);
  for (std::int64_t j = 0; j < c.keys; ++j) {
    const T* const value = c.v + j * c.value_stride;
    const float probability = scores[j] * inverse;
#pragma omp simd
    for (std::int64_t d = 0; d < c.dim; ++d) sum[d] += probability * to_float(value[d]);
  }
#pragma omp simd
  for (std::int64_t d = 0; d < c.dim; ++d) c.out[d] = from_float<T>(sum[d]);
}

}  // namespace

constinit const CachedKernels FP8_ISA::kCachedKernels{attend<float>, attend<Bf16>};

}  // namespace fp8::ops
