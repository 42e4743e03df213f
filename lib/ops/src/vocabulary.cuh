// Cross-entropy of a part of the vocabulary on a device: one block of threads per row for the largest logit and for the
// sum of exponentials, then the gradient element by element.
#pragma once

#include <limits>

#include "cross_entropy.cuh"

namespace fp8::ops {

// Calls body(group of W, or 1, adjacent logits) of this thread for a row of n.
template <class T, int W, class Body>
__device__ void each_logit(const T* x, std::int64_t n, const Body& body) {
  const std::int64_t whole = n / W * W, step = std::int64_t{kLossThreads} * W;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * W; c < whole; c += step) body(load<W>(x + c));
  if (threadIdx.x < n - whole) body(load<1>(x + whole + threadIdx.x));
}

template <class T, int W>
__global__ void __launch_bounds__(kLossThreads) logit_maxima_kernel(StridedRows<T> logits, float* out) {
  for (std::int64_t i = blockIdx.x; i < logits.count(); i += gridDim.x) {
    float most = -std::numeric_limits<float>::infinity();
    each_logit<T, W>(logits[i], logits.columns(), [&most]<int N>(const Group<T, N>& x) {
      FP8_UNROLL
      for (int j = 0; j < N; ++j) most = to_float(x.at[j]) > most ? to_float(x.at[j]) : most;
    });
    const float all = device::block_combine<kLossThreads>(most, LargerLogit{});
    if (threadIdx.x == 0) out[i] = all;
  }
}

// Sums of exp(x - shift): groups in f32, their sums in f64, so that the error does not grow with the vocabulary.
template <class T, int W>
__global__ void __launch_bounds__(kLossThreads) logit_sums_kernel(StridedRows<T> logits, const std::int32_t* targets,
                                                                  std::int64_t first, const float* maxima, float* out) {
  for (std::int64_t i = blockIdx.x; i < logits.count(); i += gridDim.x) {
    const float shift = maxima[i];
    double mine = 0;
    each_logit<T, W>(logits[i], logits.columns(), [&mine, shift]<int N>(const Group<T, N>& x) {
      float part = 0;
      FP8_UNROLL
      for (int j = 0; j < N; ++j) part += exp_for<T>(to_float(x.at[j]) - shift);
      mine += static_cast<double>(part);
    });
    const double sum = device::block_combine<kLossThreads>(mine, device::Add{});
    if (threadIdx.x != 0) continue;
    const std::int64_t target = targets[i] - first;
    out[i] = static_cast<float>(sum);
    out[logits.count() + i] = target >= 0 && target < logits.columns() ? to_float(logits[i][target]) : 0.0f;
  }
}

template <int Threads>
__global__ void part_losses_kernel(const std::int32_t* targets, const float* maxima, const float* sums, float* losses,
                                   std::int64_t rows) {
  const std::int64_t i = std::int64_t{blockIdx.x} * Threads + threadIdx.x;
  if (i < rows)
    losses[i] = targets[i] == kIgnoredTarget ? 0.0f : PartLoss(maxima[i], sums[i], sums[rows + i], 1.0f).loss();
}

template <class T>
struct PartGradients {
  StridedRows<T> logits;
  const std::int32_t* targets;
  const float *maxima, *sums;
  std::int64_t first;
  float scale;
  struct Row {
    T* x;
    PartLoss row;
    std::int64_t target;
    bool ignored;
    template <int W>
    __device__ void at(std::int64_t c) const {
      Group<T, W> out = load<W>(x + c);
      FP8_UNROLL
      for (int j = 0; j < W; ++j)
        out.at[j] = ignored ? from_float<T>(0.0f) : row.template gradient<T>(out.at[j], c + j == target);
      store<W>(x + c, out);
    }
  };
  __device__ Row row(std::int64_t i) const {
    return {logits[i], PartLoss(maxima[i], sums[i], sums[logits.count() + i], scale), targets[i] - first,
            targets[i] == kIgnoredTarget};
  }
};

// A block for each row, or several rows.
template <class Launcher>
dim3 loss_grid(const Launcher& launch, const View& logits) {
  return dim3(static_cast<unsigned>(std::min(logits.shape[0], std::int64_t{launch.multiprocessors()} * 2)));
}

// Views checked by logit_maxima().
template <class Launcher>
void logit_maxima_cuda(const Launcher& launch, const View& logits, const View& out) {
  constexpr const char* kName = "logit maxima";
  with_float_type(logits.dtype, kName, [&]<class T>() {
    launch(kName, loss_grid(launch, logits), dim3(kLossThreads),
           packs(logits) ? logit_maxima_kernel<T, device::Pack<T>::kSize> : logit_maxima_kernel<T, 1>,
           StridedRows<T>(logits), out.as<float>());
  });
}

// Views checked by logit_sums().
template <class Launcher>
void logit_sums_cuda(const Launcher& launch, const View& logits, const View& targets, std::int64_t first,
                     const View& maxima, const View& out) {
  constexpr const char* kName = "logit sums";
  with_float_type(logits.dtype, kName, [&]<class T>() {
    launch(kName, loss_grid(launch, logits), dim3(kLossThreads),
           packs(logits) ? logit_sums_kernel<T, device::Pack<T>::kSize> : logit_sums_kernel<T, 1>,
           StridedRows<T>(logits), targets.as<const std::int32_t>(), first, maxima.as<const float>(), out.as<float>());
  });
}

// Views checked by cross_entropy_of_part().
template <class Launcher>
void cross_entropy_of_part_cuda(const Launcher& launch, const PartOfLogits& part) {
  constexpr const char* kName = "cross-entropy";
  const View& logits = part.logits;
  const auto* ids = part.targets.as<const std::int32_t>();
  const auto *largest = part.maxima.as<const float>(), *all = part.sums.as<const float>();
  const std::int64_t m = logits.shape[0];
  launch(kName, dim3(device::blocks_for(m, kThreads)), dim3(kThreads), part_losses_kernel<kThreads>, ids, largest, all,
         part.losses.as<float>(), m);
  if (!part.backward) return;
  with_float_type(logits.dtype, kName, [&]<class T>() {
    const PartGradients<T> op{StridedRows<T>(logits), ids, largest, all, part.first, part.gradient_scale};
    for_each(launch, kName, op, m, logits.shape[1], packs(logits));
  });
}

}  // namespace fp8::ops
