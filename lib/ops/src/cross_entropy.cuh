// Cross-entropy of a block of logits on a device, one block of threads per row. The row is read once for the largest
// logit and the sum of exponentials, and again, from the L2 cache if the rows of all blocks fit, for the gradient in
// place.
#pragma once

#include <limits>

#include "elements.h"
#include "fp8/ops/elementwise.h"
#include "rows.cuh"

namespace fp8::ops {

inline constexpr int kLossThreads = 1024;

// Largest value so far, and the sum of exp(x - largest): groups in f32, their sums in f64, so that the error does not
// grow with the vocabulary.
template <class T>
struct ExpSum {
  float largest = -std::numeric_limits<float>::max();  // not infinity, because inf - inf is NaN
  double sum = 0;
  template <int W>
  __device__ void add(const Group<T, W>& x) {
    float most = largest;
    FP8_UNROLL
    for (int j = 0; j < W; ++j) most = to_float(x.at[j]) > most ? to_float(x.at[j]) : most;
    if (most > largest) {
      sum *= static_cast<double>(exp_for<T>(largest - most));
      largest = most;
    }
    float part = 0;
    FP8_UNROLL
    for (int j = 0; j < W; ++j) part += exp_for<T>(to_float(x.at[j]) - largest);
    sum += static_cast<double>(part);
  }
};

struct LargerLogit {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

// One row; NaN for a target that is neither a token nor ignored, so that the step is detected as non-finite.
template <class T, int W>
__device__ void row_loss(T* x, std::int64_t n, std::int32_t target, float scale, bool backward, float* loss) {
  const std::int64_t whole = n / W * W, first = static_cast<std::int64_t>(threadIdx.x) * W,
                     step = std::int64_t{kLossThreads} * W;
  const bool known = target >= 0 && target < n;
  const float at_target = known ? to_float(x[target]) : std::numeric_limits<float>::quiet_NaN();
  ExpSum<T> mine;
  FP8_UNROLL_BY_4
  for (std::int64_t c = first; c < whole; c += step) mine.add(load<W>(x + c));
  if (threadIdx.x < n - whole) mine.add(load<1>(x + whole + threadIdx.x));
  const float shift = device::block_combine<kLossThreads>(mine.largest, LargerLogit{});
  mine.sum *= static_cast<double>(exp_for<T>(mine.largest - shift));
  const double sum = device::block_combine<kLossThreads>(mine.sum, device::Add{});
  const float difference = at_target - shift;
  if (threadIdx.x == 0) *loss = static_cast<float>(std::log(sum) - static_cast<double>(difference));
  if (!backward) return;
  const float inverse = known ? static_cast<float>(1.0 / sum) : at_target, factor = inverse * scale;
  for (std::int64_t c = first; c < whole; c += step) {
    Group<T, W> out = load<W>(x + c);
    FP8_UNROLL
    for (int j = 0; j < W; ++j) {
      out.at[j] =
          c + j == target ? target_gradient<T>(difference, inverse, scale) : logit_gradient(out.at[j], shift, factor);
    }
    store<W>(x + c, out);
  }
  const std::int64_t c = whole + threadIdx.x;
  if (c < n) x[c] = c == target ? target_gradient<T>(difference, inverse, scale) : logit_gradient(x[c], shift, factor);
}

template <class T, int W>
__global__ void __launch_bounds__(kLossThreads) cross_entropy_kernel(StridedRows<T> logits, const std::int32_t* targets,
                                                                     float* losses, float scale, bool backward) {
  const std::int64_t n = logits.columns();
  for (std::int64_t i = blockIdx.x; i < logits.count(); i += gridDim.x) {
    if (targets[i] != kIgnoredTarget) {
      row_loss<T, W>(logits[i], n, targets[i], scale, backward, losses + i);
      continue;
    }
    if (threadIdx.x == 0) losses[i] = 0;
    if (!backward) continue;
    for (std::int64_t c = threadIdx.x; c < n; c += kLossThreads) logits[i][c] = from_float<T>(0.0f);
  }
}

// Views checked by cross_entropy().
template <class Launcher>
void cross_entropy_cuda(const Launcher& launch, const View& logits, const View& targets, const View& losses,
                        float gradient_scale, bool backward) {
  constexpr const char* kName = "cross-entropy";
  const dim3 grid(static_cast<unsigned>(std::min(logits.shape[0], std::int64_t{launch.multiprocessors()} * 2))),
      block(kLossThreads);
  with_float_type(logits.dtype, kName, [&]<class T>() {
    const StridedRows<T> rows(logits);
    const auto* ids = targets.as<std::int32_t>();
    auto* out = losses.as<float>();
    packs(logits) ? launch(kName, grid, block, cross_entropy_kernel<T, device::Pack<T>::kSize>, rows, ids, out,
                           gradient_scale, backward)
                  : launch(kName, grid, block, cross_entropy_kernel<T, 1>, rows, ids, out, gradient_scale, backward);
  });
}

}  // namespace fp8::ops
