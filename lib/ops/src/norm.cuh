// RMSNorm on a device. A team of threads, a warp or a block, processes a row: each thread keeps kHeld groups in
// registers between the sum and the result; the rest of a longer row is read again.
#pragma once

#include "column_sums.cuh"
#include "elements.h"

namespace fp8::ops {

inline constexpr int kHeld = 4;
inline constexpr std::int64_t kWarpRow = 512;  // longest row for one warp

// The columns of a row for one thread, by chunks: in each chunk, groups with a stride of `Team`.
template <int Team, int W>
struct Columns {
  static constexpr std::int64_t kChunk = std::int64_t{Team} * W * kHeld;
  std::int64_t first, count;
  __device__ explicit Columns(std::int64_t n)
      : first(static_cast<std::int64_t>(threadIdx.x) % Team * W), count(divide_up(n, kChunk)) {}
  __device__ std::int64_t at(std::int64_t chunk, int k) const {
    return chunk * kChunk + std::int64_t{k} * Team * W + first;
  }
};

template <class T, int W>
struct Held {
  Group<T, W> at[kHeld] = {};  // zero past the end
  template <int Team>
  __device__ void read(const T* row, const Columns<Team, W>& columns, std::int64_t chunk, std::int64_t n) {
    FP8_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const std::int64_t c = columns.at(chunk, k);
      at[k] = c < n ? load<W>(row + c) : Group<T, W>{};
    }
  }
};

// Row i of x, or of sum = x + delta, to y. W divides the length of a row.
template <class T>
struct NormForward {
  StridedRows<T> x, delta, sum;  // without delta: sum is x
  const T* weight;
  float eps;
  StridedRows<T> y;
  StridedRows<float> rstd;

  template <int Team, int W>
  __device__ void add(std::int64_t i, const Columns<Team, W>& columns, std::int64_t chunk, std::int64_t n,
                      Held<T, W>& held) const {
    Held<T, W> other;
    held.read(x[i], columns, chunk, n);
    other.read(delta[i], columns, chunk, n);
    T* to = sum[i];
    FP8_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      FP8_UNROLL
      for (int j = 0; j < W; ++j)
        held.at[k].at[j] = from_float<T>(to_float(held.at[k].at[j]) + to_float(other.at[k].at[j]));
      const std::int64_t c = columns.at(chunk, k);
      if (c < n) store<W>(to + c, held.at[k]);
    }
  }
  template <int Team, int W>
  __device__ void write(std::int64_t i, const Columns<Team, W>& columns, std::int64_t chunk, std::int64_t n,
                        const Held<T, W>& held, float inverse) const {
    T* to = y[i];
    FP8_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const std::int64_t c = columns.at(chunk, k);
      if (c >= n) continue;
      const Group<T, W> w = load<W>(weight + c);
      Group<T, W> out;
      FP8_UNROLL
      for (int j = 0; j < W; ++j) out.at[j] = norm_output(held.at[k].at[j], inverse, w.at[j]);
      store<W>(to + c, out);
    }
  }
  template <int Team, int W>
  __device__ void run(std::int64_t i) const {
    const std::int64_t n = x.columns();
    const Columns<Team, W> columns(n);
    Held<T, W> held;
    float square = 0;
    for (std::int64_t chunk = 0; chunk < columns.count; ++chunk) {
      if (delta.empty()) {
        held.read(x[i], columns, chunk, n);
      } else {
        add(i, columns, chunk, n, held);
      }
      FP8_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        FP8_UNROLL
        for (int j = 0; j < W; ++j) square += to_float(held.at[k].at[j]) * to_float(held.at[k].at[j]);
      }
    }
    const float inverse = 1.0f / std::sqrt(team_sum<Team>(square) / static_cast<float>(n) + eps);
    if (columns.first == 0) *rstd[i] = inverse;
    for (std::int64_t chunk = columns.count - 1; chunk >= 0; --chunk) {  // the last one is still in registers
      if (chunk + 1 < columns.count) held.read(sum[i], columns, chunk, n);
      write(i, columns, chunk, n, held, inverse);
    }
  }
};

// dx of row i; dx may be dy or upstream.
template <class T>
struct NormBackward {
  StridedRows<T> dy, x, upstream, dx;
  const T* weight;
  StridedRows<float> rstd;

  template <int Team, int W>
  __device__ void write(std::int64_t i, const Columns<Team, W>& columns, std::int64_t chunk, const Held<T, W>& d,
                        const Held<T, W>& at, float inverse, float mean) const {
    const std::int64_t n = x.columns();
    T* to = dx[i];
    const T* up = upstream.empty() ? nullptr : upstream[i];
    FP8_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const std::int64_t c = columns.at(chunk, k);
      if (c >= n) continue;
      const Group<T, W> w = load<W>(weight + c), past = up == nullptr ? Group<T, W>{} : load<W>(up + c);
      Group<T, W> out;
      FP8_UNROLL
      for (int j = 0; j < W; ++j) {
        const float gradient = norm_gradient(d.at[k].at[j], at.at[k].at[j], w.at[j], inverse, mean);
        out.at[j] = from_float<T>(up == nullptr ? gradient : gradient + to_float(past.at[j]));
      }
      store<W>(to + c, out);
    }
  }
  template <int Team, int W>
  __device__ void run(std::int64_t i) const {
    const std::int64_t n = x.columns();
    const Columns<Team, W> columns(n);
    const float inverse = *rstd[i];
    Held<T, W> d, at;
    float dot = 0;
    for (std::int64_t chunk = 0; chunk < columns.count; ++chunk) {
      d.read(dy[i], columns, chunk, n);
      at.read(x[i], columns, chunk, n);
      FP8_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        const std::int64_t c = columns.at(chunk, k);
        const Group<T, W> w = c < n ? load<W>(weight + c) : Group<T, W>{};
        FP8_UNROLL
        for (int j = 0; j < W; ++j) dot += norm_dot(d.at[k].at[j], at.at[k].at[j], w.at[j], inverse);
      }
    }
    const float mean = team_sum<Team>(dot) / static_cast<float>(n);
    for (std::int64_t chunk = columns.count - 1; chunk >= 0; --chunk) {
      if (chunk + 1 < columns.count) {
        d.read(dy[i], columns, chunk, n);
        at.read(x[i], columns, chunk, n);
      }
      write(i, columns, chunk, d, at, inverse, mean);
    }
  }
};

// Summands of the gradient of the weight.
template <class T>
struct NormWeight {
  StridedRows<T> dy, x;
  StridedRows<float> rstd;
  struct Row {
    const T *dy, *x;
    float rstd;
    template <int W>
    __device__ void add(std::int64_t c, Group<float, W>& sum) const {
      const Group<T, W> d = load<W>(dy + c), at = load<W>(x + c);
      FP8_UNROLL
      for (int j = 0; j < W; ++j) sum.at[j] += to_float(d.at[j]) * normalized(at.at[j], rstd);
    }
  };
  __device__ Row row(std::int64_t i) const { return {dy[i], x[i], *rstd[i]}; }
};

template <int Team, int W, class Norm>
__global__ void __launch_bounds__(kThreads) norm_kernel(Norm norm) {
  constexpr int kTeams = kThreads / Team;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kTeams + static_cast<int>(threadIdx.x) / Team;
       i < norm.x.count(); i += static_cast<std::int64_t>(gridDim.x) * kTeams)
    norm.template run<Team, W>(i);
}

template <class Launcher, class Norm>
void launch_norm(const Launcher& launch, const char* name, const Norm& norm, bool packed) {
  const bool alone = norm.x.columns() <= kWarpRow;
  const std::int64_t blocks = std::min(divide_up(norm.x.count(), alone ? kThreads / device::kWarp : 1),
                                       std::int64_t{launch.multiprocessors()} * kBlocksEach);
  const dim3 grid(static_cast<unsigned>(blocks)), block(kThreads);
  if (alone) {
    packed ? launch(name, grid, block, norm_kernel<device::kWarp, kWide, Norm>, norm)
           : launch(name, grid, block, norm_kernel<device::kWarp, 1, Norm>, norm);
  } else {
    packed ? launch(name, grid, block, norm_kernel<kThreads, kWide, Norm>, norm)
           : launch(name, grid, block, norm_kernel<kThreads, 1, Norm>, norm);
  }
}

// Whether all rows of these views, and the weight, can be read in whole groups.
template <class... Views>
bool norm_packs(const View& weight, const Views&... views) {
  return weight.shape[0] % kWide == 0 && packs(weight) && (packs(views) && ...);
}

// Views checked by rmsnorm_forward and add_rmsnorm_forward; without addition delta is empty and sum is x.
template <class Launcher>
void norm_forward_cuda(const Launcher& launch, const char* name, const View& x, const View& delta, const View& weight,
                       float eps, const View& sum, const View& y, const View& rstd) {
  with_float_type(x.dtype, name, [&]<class T>() {
    const NormForward<T> norm{StridedRows<T>(x),
                              StridedRows<T>(delta),
                              StridedRows<T>(sum),
                              weight.as<T>(),
                              eps,
                              StridedRows<T>(y),
                              StridedRows<float>(with_unit_column(rstd))};
    launch_norm(launch, name, norm, norm_packs(weight, x, delta, sum, y));
  });
}

// Views checked by rmsnorm_backward; partial f32 [column_blocks, C] unless dweight is empty.
template <class Launcher>
void norm_backward_cuda(const Launcher& launch, const View& dy, const View& x, const View& weight, const View& rstd,
                        const View& upstream, const View& dx, const View& dweight, const View& partial) {
  constexpr const char* kName = "rmsnorm backward";
  with_float_type(x.dtype, kName, [&]<class T>() {
    const StridedRows<T> dy_rows(dy), x_rows(x);
    const StridedRows<float> rstd_rows(with_unit_column(rstd));
    const bool packed = norm_packs(weight, dy, x, upstream, dx);
    if (dweight.rank != 0) {  // first: dx may be dy
      column_sums(launch, kName, NormWeight<T>{dy_rows, x_rows, rstd_rows}, x_rows.count(), x_rows.columns(), packed,
                  partial.as<float>(), dweight.as<float>());
    }
    const NormBackward<T> norm{dy_rows,        x_rows,   StridedRows<T>(upstream), StridedRows<T>(dx),
                               weight.as<T>(), rstd_rows};
    launch_norm(launch, kName, norm, packed);
  });
}

}  // namespace fp8::ops
