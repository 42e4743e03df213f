// Cross-entropy of a block of logits on the host, its gradient in place. One row per thread at a time: maximum, sum of
// exponentials, gradient, while the row is in the cache. Not the LM head: the caller makes the logits chunk by chunk.
#include <algorithm>
#include <cmath>

#include "cuda.h"
#include "fp8/ops/elementwise.h"
#include "loss_element.h"
#include "rows.h"

namespace fp8::ops {
namespace {

using dtype::from_float;
using dtype::to_float;

template <class T>
float maximum(const T* x, std::int64_t n) {
  float m = to_float(x[0]);
#pragma omp simd reduction(max : m)
  for (std::int64_t c = 0; c < n; ++c) {
    const float v = to_float(x[c]);
    m = v > m ? v : m;
  }
  return m;
}

// Sum of exp(x - shift): chunks in f32 lanes, their sums in f64, so that the error does not grow with the vocabulary.
template <class T>
double sum_of_exp(const T* x, std::int64_t n, float shift) {
  constexpr std::int64_t kChunk = 1024;
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kChunk) {
    const std::int64_t end = std::min(n, begin + kChunk);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = begin; c < end; ++c) sum += exp_for<T>(to_float(x[c]) - shift);
    total += static_cast<double>(sum);
  }
  return total;
}

// Loss of one row; with `backward` x becomes its gradient.
template <class T>
float row_loss(T* x, std::int64_t n, std::int32_t target, float scale, bool backward) {
  if (target == kIgnoredTarget) {
    if (backward) std::fill(x, x + n, from_float<T>(0.0f));
    return 0.0f;
  }
  const float shift = maximum(x, n);
  const double sum = sum_of_exp(x, n, shift);
  const float difference = to_float(x[target]) - shift;
  const auto inverse = static_cast<float>(1.0 / sum);
  if (backward) {
    const float factor = inverse * scale;
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c) x[c] = logit_gradient(x[c], shift, factor);
    x[target] = target_gradient<T>(difference, inverse, scale);
  }
  return static_cast<float>(std::log(sum) - static_cast<double>(difference));
}

}  // namespace

void cross_entropy(const Context& ctx, const View& logits, const View& targets, const View& losses,
                   float gradient_scale, bool backward) {
  constexpr const char* kOp = "cross-entropy";
  need_place(ctx, kOp, logits, targets, losses);
  need(logits.rank == 2 && logits.shape[1] > 0 && unit_last_stride(logits), kOp,
       "logits must have 2 dimensions, the last without gaps");
  const std::int64_t m = logits.shape[0], vocabulary = logits.shape[1];
  need(targets.dtype == DType::i32 && targets.size() == m && targets.contiguous(), kOp,
       "targets must be int32, one for each row");
  need(losses.dtype == DType::f32 && losses.size() == m && losses.contiguous(), kOp,
       "losses must be float32, one for each row");
  if (ctx.dry) return;
  const device::Timer timer(ctx, device::Work::cross_entropy, kOp, (backward ? 2 : 1) * bytes_of(logits),
                            flops_of(logits, backward ? 5 : 3));
  if (ctx.place == device::Place::cuda)
    return cuda::cross_entropy(ctx, logits, targets, losses, gradient_scale, backward);
  const std::int32_t* ids = targets.as<std::int32_t>();
  for (std::int64_t i = 0; i < m; ++i) {
    if ((ids[i] < 0 || ids[i] >= vocabulary) && ids[i] != kIgnoredTarget) {
      throw Error(std::string(kOp) + ": target " + std::to_string(ids[i]) + " is not below " +
                  std::to_string(vocabulary));
    }
  }
  float* out = losses.as<float>();
  with_activation_type(logits.dtype, kOp, [&]<class T>(T) {
    const Rows<T> rows(logits);
    parallel_for(m, vocabulary * 4,
                 [&](std::int64_t i) { out[i] = row_loss(rows[i], vocabulary, ids[i], gradient_scale, backward); });
  });
}

}  // namespace fp8::ops
