// Rotary positions on a device: the tables, and the rotation in place. A thread processes a group of pairs of one
// position for all heads, so that it reads the tables once.
#pragma once

#include <span>

#include "elements.h"
#include "rows.cuh"

namespace fp8::ops {

inline constexpr int kFrequencies = 256;

// Frequencies are an argument of the kernel, which needs no memory and no copy.
struct Frequencies {
  float at[kFrequencies];
};

template <int Threads>
__global__ void rope_tables_kernel(const __grid_constant__ Frequencies frequencies, std::int64_t positions, int count,
                                   std::int64_t stride, float* cos, float* sin) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * Threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * Threads + threadIdx.x; i < positions * count;
       i += step) {
    std::int64_t column = 0;
    const std::int64_t t = divide(i, count, column);
    rope_angle(t, frequencies.at[column], cos[t * stride + column], sin[t * stride + column]);
  }
}

// cos and sin f32 [T, D/2], contiguous.
template <class Launcher>
void rope_tables_cuda(const Launcher& launch, std::span<const float> inv_freq, const View& cos, const View& sin) {
  const std::int64_t positions = cos.shape[0], half = cos.shape[1];
  for (std::int64_t first = 0; first < half; first += kFrequencies) {
    const auto count = static_cast<int>(std::min<std::int64_t>(kFrequencies, half - first));
    Frequencies frequencies{};
    std::copy_n(inv_freq.begin() + first, count, frequencies.at);
    const std::int64_t blocks =
        std::min(divide_up(positions * count, kThreads), std::int64_t{launch.multiprocessors()} * kBlocksEach);
    launch("rope tables", dim3(static_cast<unsigned>(blocks)), dim3(kThreads), rope_tables_kernel<kThreads>,
           frequencies, positions, count, half, cos.as<float>() + first, sin.as<float>() + first);
  }
}

// A row is a position of a sequence; its columns are the pairs of one head.
template <class T>
struct RotateHeads {
  T* data;
  std::int64_t sequence, position, head;  // strides
  std::int64_t positions, heads, half;
  const float *cos, *sin;
  float sign;
  struct Row {
    T* data;
    std::int64_t head, heads, half;
    const float *cos, *sin;
    float sign;
    template <int W>
    __device__ void at(std::int64_t c) const {
      const Group<float, W> x = load<W>(cos + c), y = load<W>(sin + c);
      FP8_UNROLL_BY_4
      for (std::int64_t h = 0; h < heads; ++h) {
        T* lower = data + h * head + c;
        Group<T, W> a = load<W>(lower), b = load<W>(lower + half);
        FP8_UNROLL
        for (int j = 0; j < W; ++j) rotate(a.at[j], b.at[j], x.at[j], sign * y.at[j]);
        store<W>(lower, a);
        store<W>(lower + half, b);
      }
    }
  };
  __device__ Row row(std::int64_t i) const {
    std::int64_t t = 0;
    const std::int64_t b = divide(i, positions, t);
    return {data + b * sequence + t * position, head, heads, half, cos + t * half, sin + t * half, sign};
  }
};

// Views checked by rope().
template <class Launcher>
void rope_cuda(const Launcher& launch, const View& x, const View& cos, const View& sin, bool inverse) {
  const std::int64_t half = x.shape[3] / 2;
  with_float_type(x.dtype, "rope", [&]<class T>() {
    const RotateHeads<T> op{.data = x.as<T>(),
                            .sequence = x.stride[0],
                            .position = x.stride[1],
                            .head = x.stride[2],
                            .positions = x.shape[1],
                            .heads = x.shape[2],
                            .half = half,
                            .cos = cos.as<float>(),
                            .sin = sin.as<float>(),
                            .sign = inverse ? -1.0f : 1.0f};
    for_each(launch, "rope", op, x.shape[0] * x.shape[1], half,
             packs(x) && packs(cos) && packs(sin) && half % kWide == 0);
  });
}

}  // namespace fp8::ops
