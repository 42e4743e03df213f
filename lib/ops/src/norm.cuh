// RMSNorm on a device. A team of threads, a warp or a block, processes a row: each thread keeps kHeld groups in
// registers between the sum and the result; a row that is longer than that is read again in chunks.
#pragma once

#include "column_sums.cuh"
#include "elements.h"

namespace fp8::ops {

inline constexpr int kHeld = 2;
template <class T>
inline constexpr int kPacked = 16 / static_cast<int>(sizeof(T));  // elements of a group

// The columns of a row for one thread, by chunks: in each chunk, groups with a stride of `Team`. See launch_norm() for
// rows of several chunks.
template <int Team, int W>
struct Columns {
  static constexpr int kChunk = Team * W * kHeld;
  static constexpr bool kSeveral = W == 1 || Team > kThreads;  // chunks
  int n, first;                                                // 32 bits, for fewer registers
  __device__ explicit Columns(std::int64_t columns)
      : n(static_cast<int>(columns)), first(static_cast<int>(threadIdx.x) % Team * W) {}
  __device__ int at(int chunk, int k) const { return chunk * kChunk + k * Team * W + first; }
  __device__ int chunks() const { return kSeveral ? (n + kChunk - 1) / kChunk : 1; }
};

// The groups of a thread in one chunk of a row.
template <class T, int W>
struct Held {
  Bits<T, W> at[kHeld] = {};  // zero past the end
  template <int Team>
  __device__ void read(const T* row, const Columns<Team, W>& columns, int chunk) {
    FP8_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const int c = columns.at(chunk, k);
      at[k] = c < columns.n ? load_bits<W>(row + c) : Bits<T, W>{};
    }
  }
  template <int Team>
  __device__ void write(T* row, const Columns<Team, W>& columns, int chunk) const {
    FP8_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const int c = columns.at(chunk, k);
      if (c < columns.n) store_bits<W>(row + c, at[k]);
    }
  }
};

// Values times rstd, rounded to T as normalized().
template <class T, int W>
__device__ inline Group<float, W> normalized_group(Group<float, W> v, float rstd) {
  FP8_UNROLL
  for (int j = 0; j < W; ++j) v.at[j] *= rstd;
  return floats_of(bits_of<T>(v));
}

// Row i of x, or of sum = x + delta, to y. W divides the length of a row.
template <class T>
struct NormForward {
  static constexpr int kThreadsEach = 1280;  // threads of a multiprocessor, as registers allow
  StridedRows<T> x, delta, sum;              // without delta: sum is x
  const T* weight;
  float eps;
  StridedRows<T> y;
  StridedRows<float> rstd;
  AmaxOf amax;  // where the amax of y is written

  __device__ std::int64_t rows() const { return x.count(); }

  template <int Team, int W>
  struct Thread {
    const NormForward& op;
    Columns<Team, W> columns;
    device::Largest largest;
    Held<T, W> held{};

    __device__ explicit Thread(const NormForward& norm)
        : op(norm), columns(norm.x.columns()), largest(norm.amax.skip_nan) {}

    __device__ void add(std::int64_t i, int chunk) {
      Held<T, W> other;
      held.read(op.x[i], columns, chunk);
      other.read(op.delta[i], columns, chunk);
      FP8_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        Group<float, W> v = floats_of(held.at[k]);
        const Group<float, W> d = floats_of(other.at[k]);
        FP8_UNROLL
        for (int j = 0; j < W; ++j) v.at[j] += d.at[j];
        held.at[k] = bits_of<T>(v);
      }
      held.write(op.sum[i], columns, chunk);
    }
    __device__ void write(std::int64_t i, int chunk, float inverse) {
      FP8_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        const int c = columns.at(chunk, k);
        if (c >= columns.n) continue;
        const Group<float, W> w = load_floats<W>(op.weight + c);
        Group<float, W> out = normalized_group<T>(floats_of(held.at[k]), inverse);
        FP8_UNROLL
        for (int j = 0; j < W; ++j) out.at[j] *= w.at[j];
        held.at[k] = bits_of<T>(out);
        largest.add(floats_of(held.at[k]));
      }
      if (!op.y.empty()) held.write(op.y[i], columns, chunk);
    }
    __device__ bool results_wanted() const { return !op.y.empty() || op.amax.bits != nullptr; }
    __device__ void row(std::int64_t i) {
      float square = 0;
      for (int chunk = 0; chunk < columns.chunks(); ++chunk) {
        if (op.delta.empty()) {
          held.read(op.x[i], columns, chunk);
        } else {
          add(i, chunk);
        }
        FP8_UNROLL
        for (int k = 0; k < kHeld; ++k) {
          const Group<float, W> v = floats_of(held.at[k]);
          FP8_UNROLL
          for (int j = 0; j < W; ++j) square += v.at[j] * v.at[j];
        }
      }
      const float inverse = 1.0f / std::sqrt(team_sum<Team>(square) / static_cast<float>(columns.n) + op.eps);
      if (columns.first == 0) *op.rstd[i] = inverse;
      if (!results_wanted()) return;
      for (int chunk = columns.chunks() - 1; chunk >= 0; --chunk) {  // the last one is still in registers
        if (chunk + 1 < columns.chunks()) held.read(op.sum[i], columns, chunk);
        write(i, chunk, inverse);
      }
    }
    __device__ void finish() { op.amax.template record<std::max(Team, kThreads)>(largest); }
  };
};

// dx of row i, and the sums over rows of the gradient of the weight; dx may be dy or upstream. Each block sums its rows
// in their order, in registers, or in `partial` for rows that are longer than a chunk.
template <class T>
struct NormBackward {
  static constexpr int kThreadsEach = 768;  // threads of a multiprocessor, as registers allow
  StridedRows<T> dy, x, upstream, dx;
  const T* weight;
  StridedRows<float> rstd;
  float* partial;  // [blocks, C]; null: no gradient of the weight
  AmaxOf amax;     // where the amax of dx is written

  __device__ std::int64_t rows() const { return x.count(); }

  template <int Team, int W>
  struct Thread {
    const NormBackward& op;
    Columns<Team, W> columns;
    device::Largest largest;
    Held<T, W> d{}, at{};
    Group<float, W> sums[kHeld] = {};
    float* sums_of_block;  // past the first chunk of `partial`
    bool first = true;     // row of this block

    __device__ explicit Thread(const NormBackward& norm)
        : op(norm),
          columns(norm.x.columns()),
          largest(norm.amax.skip_nan),
          sums_of_block(norm.partial == nullptr ? nullptr : norm.partial + blockIdx.x * columns.n) {}

    // Adds the summands of group k in a chunk.
    __device__ void add(int chunk, int k, const Group<float, W>& dy, const Group<float, W>& v, float inverse) {
      const Group<float, W> normal = normalized_group<T>(v, inverse);
      float* const to = sums_of_block + columns.at(chunk, k);
      const bool kept = columns.chunks() == 1;
      Group<float, W> sum = kept || first ? sums[k] : load_floats<W>(to);
      FP8_UNROLL
      for (int j = 0; j < W; ++j) sum.at[j] += dy.at[j] * normal.at[j];
      if (kept) {
        sums[k] = sum;
      } else {
        store_floats<W>(to, sum);
      }
    }
    __device__ void write(std::int64_t i, int chunk, float inverse, float mean) {
      const T* up = op.upstream.empty() ? nullptr : op.upstream[i];
      FP8_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        const int c = columns.at(chunk, k);
        if (c >= columns.n) continue;
        const Group<float, W> dy = floats_of(d.at[k]), v = floats_of(at.at[k]), w = load_floats<W>(op.weight + c);
        if (sums_of_block != nullptr) add(chunk, k, dy, v, inverse);
        Group<float, W> out;
        FP8_UNROLL
        for (int j = 0; j < W; ++j) out.at[j] = norm_gradient(dy.at[j], v.at[j], w.at[j], inverse, mean);
        if (up != nullptr) add_floats<W>(up + c, out);
        d.at[k] = bits_of<T>(out);
        largest.add(floats_of(d.at[k]));
      }
      d.write(op.dx[i], columns, chunk);
    }
    __device__ void read(std::int64_t i, int chunk) {
      d.read(op.dy[i], columns, chunk);
      at.read(op.x[i], columns, chunk);
    }
    __device__ void row(std::int64_t i) {
      const float inverse = *op.rstd[i];
      float dot = 0;
      for (int chunk = 0; chunk < columns.chunks(); ++chunk) {
        read(i, chunk);
        FP8_UNROLL
        for (int k = 0; k < kHeld; ++k) {
          const int c = columns.at(chunk, k);
          if (c >= columns.n) continue;
          const Group<float, W> dy = floats_of(d.at[k]), v = floats_of(at.at[k]), w = load_floats<W>(op.weight + c);
          FP8_UNROLL
          for (int j = 0; j < W; ++j) dot += norm_dot(dy.at[j], v.at[j], w.at[j], inverse);
        }
      }
      const float mean = team_sum<Team>(dot) / static_cast<float>(columns.n);
      for (int chunk = columns.chunks() - 1; chunk >= 0; --chunk) {
        if (chunk + 1 < columns.chunks()) read(i, chunk);
        write(i, chunk, inverse, mean);
      }
      first = false;
    }
    __device__ void finish() {
      op.amax.template record<std::max(Team, kThreads)>(largest);
      if (sums_of_block == nullptr || columns.chunks() > 1) return;
      if constexpr (Team < kThreads) {
        add_warps();
      } else {
        FP8_UNROLL
        for (int k = 0; k < kHeld; ++k)
          if (columns.at(0, k) < columns.n) store_floats<W>(sums_of_block + columns.at(0, k), sums[k]);
      }
    }
    // Sums of the block from those of its warps, in their order.
    __device__ void add_warps() {
      alignas(16) __shared__ float of_warp[kThreads / Team][Columns<Team, W>::kChunk];
      const int warp = static_cast<int>(threadIdx.x) / Team;
      FP8_UNROLL
      for (int k = 0; k < kHeld; ++k) *reinterpret_cast<Group<float, W>*>(&of_warp[warp][columns.at(0, k)]) = sums[k];
      __syncthreads();
      for (int c = static_cast<int>(threadIdx.x); c < columns.n; c += kThreads) {
        float sum = 0;
        for (int other = 0; other < kThreads / Team; ++other) sum += of_warp[other][c];
        sums_of_block[c] = sum;
      }
    }
  };
};

template <int Team, int W, class Norm>
__global__ void __launch_bounds__(std::max(Team, kThreads), Norm::kThreadsEach / std::max(Team, kThreads))
    norm_kernel(Norm norm) {
  constexpr int kTeams = std::max(Team, kThreads) / Team;
  typename Norm::template Thread<Team, W> thread(norm);
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kTeams + static_cast<int>(threadIdx.x) / Team;
       i < norm.rows(); i += static_cast<std::int64_t>(gridDim.x) * kTeams)
    thread.row(i);
  thread.finish();
}

// Rows of whole groups get the smallest team that holds them in one chunk; others a block.
template <class T, class Launcher, class Norm>
void launch_norm(const Launcher& launch, const char* name, const Norm& norm, std::int64_t blocks, bool packed) {
  constexpr int kEach = kPacked<T>;
  const std::int64_t columns = norm.x.columns();
  const dim3 grid(static_cast<unsigned>(blocks));
  if (!packed) {
    launch(name, grid, dim3(kThreads), norm_kernel<kThreads, 1, Norm>, norm);
  } else if (columns <= Columns<device::kWarp, kEach>::kChunk) {
    launch(name, grid, dim3(kThreads), norm_kernel<device::kWarp, kEach, Norm>, norm);
  } else if (columns <= Columns<kThreads, kEach>::kChunk) {
    launch(name, grid, dim3(kThreads), norm_kernel<kThreads, kEach, Norm>, norm);
  } else {
    launch(name, grid, dim3(2 * kThreads), norm_kernel<2 * kThreads, kEach, Norm>, norm);
  }
}

// Whether all rows of these views, and the weight, can be read in whole groups.
template <class... Views>
bool norm_packs(const View& weight, const Views&... views) {
  return weight.shape[0] * static_cast<std::int64_t>(dtype::size_of(weight.dtype)) % 16 == 0 && packs(weight) &&
         (packs(views) && ...);
}

// Views checked by rmsnorm_forward and add_rmsnorm_forward; without addition delta is empty and sum is x.
template <class Launcher>
void norm_forward_cuda(const Launcher& launch, const char* name, const AddNorm& of) {
  with_float_type(of.x.dtype, name, [&]<class T>() {
    const NormForward<T> norm{StridedRows<T>(of.x),
                              StridedRows<T>(of.delta),
                              StridedRows<T>(of.sum),
                              of.weight.as<T>(),
                              of.eps,
                              StridedRows<T>(of.y),
                              StridedRows<float>(with_unit_column(of.rstd)),
                              AmaxOf(of.amax)};
    const bool packed = norm_packs(of.weight, of.x, of.delta, of.sum, of.y);
    const bool shared =
        packed &&
        norm.x.columns() <= Columns<device::kWarp, kPacked<T>>::kChunk;  // whether the threads of a block share a row
    const std::int64_t rounds = divide_up(norm.x.count(), shared ? kThreads / device::kWarp : 1);
    const std::int64_t most = std::int64_t{launch.multiprocessors()} * kBlocksEach;
    launch_norm<T>(launch, name, norm, std::min(rounds, most), packed);
  });
}

// Views checked by rmsnorm_backward; partial f32 [norm_blocks, C] unless dweight is empty.
template <class Launcher>
void norm_backward_cuda(const Launcher& launch, const NormGradient& of, const View& partial) {
  constexpr const char* kName = "rmsnorm backward";
  with_float_type(of.x.dtype, kName, [&]<class T>() {
    const bool weighted = of.dweight.rank != 0;
    const NormBackward<T> norm{StridedRows<T>(of.dy),
                               StridedRows<T>(of.x),
                               StridedRows<T>(of.upstream),
                               StridedRows<T>(of.dx),
                               of.weight.as<T>(),
                               StridedRows<float>(with_unit_column(of.rstd)),
                               weighted ? partial.as<float>() : nullptr,
                               AmaxOf(of.amax)};
    const std::int64_t rows = norm.x.count(), columns = norm.x.columns(), blocks = cuda::norm_blocks(rows, columns);
    if (rows == 0 || columns == 0) return;
    launch_norm<T>(launch, kName, norm, blocks, norm_packs(of.weight, of.dy, of.x, of.upstream, of.dx));
    if (weighted) column_totals(launch, kName, partial.as<float>(), blocks, columns, of.dweight.as<float>());
  });
}

}  // namespace fp8::ops
