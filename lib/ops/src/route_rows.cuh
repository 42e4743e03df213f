// Rows of experts on a device: copied from tokens, added to them, and their gradients. All are bound by memory.
#pragma once

#include "fp8/ops/route.h"
#include "rows.cuh"

namespace fp8::ops {

template <class T>
struct GatherRows {
  const T* x;
  const std::int32_t* tokens;
  T* out;
  std::int64_t n;
  struct Row {
    const T* from;  // row of the token, or null if there is none
    T* out;
    template <int W>
    __device__ void at(std::int64_t c) const {
      if (from != nullptr) store_bits<W>(out + c, load_bits<W>(from + c));
    }
  };
  __device__ Row row(std::int64_t r) const { return {tokens[r] < 0 ? nullptr : x + tokens[r] * n, out + r * n}; }
};

// Views checked by gather_rows().
template <class Launcher>
void gather_rows_cuda(const Launcher& launch, const View& x, const View& tokens, const View& out) {
  constexpr const char* kName = "rows of experts";
  with_float_type(x.dtype, kName, [&]<class T>() {
    const GatherRows<T> op{x.as<const T>(), tokens.as<const std::int32_t>(), out.as<T>(), out.shape[1]};
    for_each(launch, kName, op, out.shape[0], out.shape[1], packs(x) && packs(out));
  });
}

template <class T>
struct AddExperts {
  const T* matrix;
  const std::int32_t* rows;
  const float *weights, *addend;  // each may be null
  T* out;
  std::int64_t k, n;
  struct Row {
    const T* matrix;
    const std::int32_t* rows;
    const float *weights, *addend;
    T* out;
    std::int64_t count, n;
    template <int W>
    __device__ void at(std::int64_t c) const {
      Group<float, W> sum{};
      FP8_UNROLL_BY_4
      for (std::int64_t j = 0; j < count; ++j) {
        const Group<float, W> row = load_floats<W>(matrix + rows[j] * n + c);
        const float weight = weights == nullptr ? 1.0f : weights[j];
        FP8_UNROLL
        for (int i = 0; i < W; ++i) sum.at[i] += weight * row.at[i];
      }
      if (addend != nullptr) add_floats<W>(addend + c, sum);
      store_floats<W>(out + c, sum);
    }
  };
  __device__ Row row(std::int64_t i) const {
    const std::int32_t* const mine = rows + i * k;
    return {matrix,
            mine,
            weights == nullptr ? nullptr : weights + i * k,
            addend == nullptr ? nullptr : addend + i * n,
            out + i * n,
            mine[0] < 0 ? 0 : k,
            n};
  }
};

// out = weighted sums of rows of `from` and then the addend; weights or addend may be empty.
template <class Launcher>
void add_experts_cuda(const Launcher& launch, const char* name, const View& from, const Routes& routes,
                      const View& weights, const View& addend, const View& out) {
  with_float_type(out.dtype, name, [&]<class T>() {
    const AddExperts<T> op{from.as<const T>(),
                           routes.rows.as<const std::int32_t>(),
                           weights.empty() ? nullptr : weights.as<const float>(),
                           addend.empty() ? nullptr : addend.as<const float>(),
                           out.as<T>(),
                           routes.per_token(),
                           out.shape[1]};
    for_each(launch, name, op, out.shape[0], out.shape[1], packs(from) && packs(addend) && packs(out));
  });
}

// Adds the products of W elements to `dot`, and sets dy, which may be y.
template <int W, class T>
__device__ inline void weigh(const T* d, const T* y, float weight, T* dy, float& dot) {
  const Group<float, W> left = load_floats<W>(d), right = load_floats<W>(y);
  Group<float, W> out;
  FP8_UNROLL
  for (int i = 0; i < W; ++i) {
    dot += left.at[i] * right.at[i];
    out.at[i] = weight * left.at[i];
  }
  store_floats<W>(dy, out);
}

// The gradients of combine_rows(), a warp for an expert of a token.
template <class T, int W>
__global__ void weighted_rows_kernel(const T* dout, const T* y, const float* weights, const std::int32_t* rows,
                                     std::int64_t count, std::int32_t k, std::int64_t n, T* dy, float* dweights) {
  const int lane = static_cast<int>(threadIdx.x) % device::kWarp;
  const std::int64_t at = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / device::kWarp;
  if (at >= count) return;
  const std::int64_t row = rows[at];
  float dot = 0;
  if (row >= 0) {
    const T *d = dout + at / k * n, *of_row = y + row * n;
    T* const to = dy + row * n;
    const float weight = weights[at];
    const std::int64_t whole = n / W * W;
    for (std::int64_t c = lane * W; c < whole; c += device::kWarp * W) weigh<W>(d + c, of_row + c, weight, to + c, dot);
    if (W > 1 && lane < n - whole) weigh<1>(d + whole + lane, of_row + whole + lane, weight, to + whole + lane, dot);
    dot = device::warp_combine(dot, device::Add{});
  }
  if (lane == 0) dweights[at] = dot;
}

// Views checked by combine_rows_backward().
template <class Launcher>
void combine_rows_backward_cuda(const Launcher& launch, const View& dout, const View& y, const Routes& routes,
                                const View& dy, const View& dweights) {
  constexpr const char* kName = "sums of experts backward";
  const std::int64_t count = routes.rows.size();
  const bool packed = packs(dout) && packs(y) && packs(dy);
  with_float_type(dout.dtype, kName, [&]<class T>() {
    launch(kName, dim3(device::blocks_for(count, kThreads / device::kWarp)), dim3(kThreads),
           packed ? weighted_rows_kernel<T, kWide> : weighted_rows_kernel<T, 1>, dout.as<const T>(), y.as<const T>(),
           routes.weights.as<const float>(), routes.rows.as<const std::int32_t>(), count,
           static_cast<std::int32_t>(routes.per_token()), dout.shape[1], dy.as<T>(), dweights.as<float>());
  });
}

}  // namespace fp8::ops
