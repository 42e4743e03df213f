// Cross-entropy of a block of logits on a device, one block of threads per row. The row is read once for the largest
// logit and the sum of exponentials, and again, from the L2 cache if the rows of all blocks fit, for the gradient in
// place, or for its amax. Codes of the gradient are written by codes.cuh.
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

// What a launch writes.
struct LossResults {
  float* losses;
  float scale;               // of the gradient
  bool gradient;             // whether it is stored in place of the logits
  float *largest, *inverse;  // of LossRows; null: not wanted
  AmaxOf amax;               // of the gradient
};

// Row i; NaN for a target that is neither a token nor ignored, so that the step is detected as non-finite.
template <class T, int W>
__device__ void row_loss(T* x, std::int64_t n, std::int32_t target, const LossResults& to, std::int64_t i,
                         device::Largest& amax) {
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
  const float inverse = known ? static_cast<float>(1.0 / sum) : at_target, factor = inverse * to.scale;
  if (threadIdx.x == 0) {
    to.losses[i] = static_cast<float>(std::log(sum) - static_cast<double>(difference));
    if (to.largest != nullptr) to.largest[i] = shift, to.inverse[i] = inverse;
  }
  if (!to.gradient && to.amax.bits == nullptr) return;
  const auto differentiate = [&]<int N>(std::int64_t c) {
    Group<T, N> out = load<N>(x + c);
    FP8_UNROLL
    for (int j = 0; j < N; ++j) {
      out.at[j] = c + j == target ? target_gradient<T>(difference, inverse, to.scale)
                                  : logit_gradient(out.at[j], shift, factor);
    }
    if (to.gradient)
      store<N>(x + c, out);
    else
      amax.add(floats_of(std::bit_cast<Bits<T, N>>(out)));
  };
  for (std::int64_t c = first; c < whole; c += step) differentiate.template operator()<W>(c);
  if (threadIdx.x < n - whole) differentiate.template operator()<1>(whole + threadIdx.x);
}

template <class T, int W>
__global__ void __launch_bounds__(kLossThreads)
    cross_entropy_kernel(StridedRows<T> logits, const std::int32_t* targets, LossResults to) {
  const std::int64_t n = logits.columns();
  device::Largest amax(to.amax.skip_nan);
  for (std::int64_t i = blockIdx.x; i < logits.count(); i += gridDim.x) {
    if (targets[i] != kIgnoredTarget) {
      row_loss<T, W>(logits[i], n, targets[i], to, i, amax);
      continue;
    }
    if (threadIdx.x == 0) to.losses[i] = 0;
    if (!to.gradient) continue;
    for (std::int64_t c = threadIdx.x; c < n; c += kLossThreads) logits[i][c] = from_float<T>(0.0f);
  }
  to.amax.record<kLossThreads>(amax);
}

// Views checked by cross_entropy() or cross_entropy_rows().
template <class Launcher>
void cross_entropy_cuda(const Launcher& launch, const View& logits, const View& targets, const LossResults& to) {
  constexpr const char* kName = "cross-entropy";
  const dim3 grid(static_cast<unsigned>(std::min(logits.shape[0], std::int64_t{launch.multiprocessors()} * 2))),
      block(kLossThreads);
  with_float_type(logits.dtype, kName, [&]<class T>() {
    const StridedRows<T> rows(logits);
    const auto* ids = targets.as<std::int32_t>();
    packs(logits) ? launch(kName, grid, block, cross_entropy_kernel<T, device::Pack<T>::kSize>, rows, ids, to)
                  : launch(kName, grid, block, cross_entropy_kernel<T, 1>, rows, ids, to);
  });
}

}  // namespace fp8::ops
