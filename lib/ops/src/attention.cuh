// Attention on a device without tensor cores, for calls that cuDNN does not support, and to test cuDNN. Forward: a
// block processes a tile of queries of one head, and all tiles of keys with an online softmax. Backward: in one kernel
// a block processes a tile of keys and the queries of all heads of its group, in another a tile of queries; both
// recompute scores. One thread therefore sums a result, in a fixed order.
#pragma once

#include "attention_tiles.cuh"
#include "elementwise.cuh"
#include "vector_math.h"

namespace fp8::ops {

inline constexpr std::int64_t kWidestHead = 4 * kTile;

template <class T>
struct AttentionCall {
  Heads<T> q, k, v, out, dout, dq, dk, dv;  // forward: gradients are unused copies
  float* lse;                               // [B, H, T]
  float* delta;                             // [B, T, H]: row sums of dout * out
  const std::int32_t* start;                // [B, T] or null
  float scale;

  // The tiles of T, and the tile, head and sequence of a block: tiles with most work first.
  __host__ __device__ std::int64_t tiles() const { return divide_up(q.positions, kTile); }
  struct Task {
    std::int64_t b, head, tile;
  };
  __device__ Task task(std::int64_t heads, bool last_first) const {
    Task t{};
    const std::int64_t tile = divide(divide(blockIdx.x, heads, t.head), q.batch, t.b);
    t.tile = last_first ? tiles() - 1 - tile : tile;
    return t;
  }
  __device__ const std::int32_t* start_of(std::int64_t b) const {
    return start == nullptr ? nullptr : start + b * q.positions;
  }
};

// The online softmax of a thread's four rows. Until finish(), `total` is of the thread's columns only.
struct Softmax {
  float most[kResults], total[kResults] = {}, rescale[kResults];
  __device__ Softmax() {
    FP8_UNROLL
    for (int i = 0; i < kResults; ++i) most[i] = -std::numeric_limits<float>::infinity();
  }
  // Replaces masked scores by probabilities relative to the largest so far; `rescale` is the factor for earlier sums.
  template <class T>
  __device__ void update(Part& scores) {
    FP8_UNROLL
    for (int i = 0; i < kResults; ++i) {
      float highest = most[i];
      FP8_UNROLL
      for (int j = 0; j < kResults; ++j) highest = scores.at[i][j] > highest ? scores.at[i][j] : highest;
      highest = side_combine(highest, Larger{});
      const float base = highest == -std::numeric_limits<float>::infinity() ? 0.0f : highest;  // all masked so far
      __syncwarp();  // row after row: with the exponentials of all rows at once, floats exceed the registers
      rescale[i] = exp_for<T>(most[i] - base);
      most[i] = highest;
      total[i] *= rescale[i];
      FP8_UNROLL
      for (int j = 0; j < kResults; ++j) {
        scores.at[i][j] = exp_for<T>(scores.at[i][j] - base);
        total[i] += scores.at[i][j];
      }
    }
  }
  __device__ void finish() {
    FP8_UNROLL
    for (int i = 0; i < kResults; ++i) total[i] = side_combine(total[i], device::Add{});
  }
};

// sum += the scores, or their transpose, times rows of a head, chunk by chunk: the scores through tile a, the rows
// through b.
template <bool kTransposed, class T, int Chunks>
__device__ void add_products(const Part& scores, const HeadRows<T>& head, std::int64_t first, TileRow* a, TileRow* b,
                             Part (&sum)[Chunks]) {
  __syncthreads();
  write_scores(scores, a);
  FP8_UNROLL
  for (int chunk = 0; chunk < Chunks; ++chunk) {
    if (chunk > 0) __syncthreads();
    read_tile(head, first, chunk * kTile, b);
    __syncthreads();
    if constexpr (kTransposed) {
      multiply_transposed(a, b, sum[chunk]);
    } else {
      multiply(a, b, sum[chunk]);
    }
  }
}

template <class T, int Chunks>
__global__ void __launch_bounds__(kThreads, 1) attention_forward_kernel(const __grid_constant__ AttentionCall<T> call) {
  alignas(16) __shared__ TileRow a[kTile], b[kTile];
  const auto task = call.task(call.q.count, true);
  const HeadRows<T> q = call.q.of(task.b, task.head), k = call.k.of(task.b, task.head / (call.q.count / call.k.count)),
                    v = call.v.of(task.b, task.head / (call.q.count / call.k.count));
  const std::int64_t query = task.tile * kTile;
  const Queries queries(call.start_of(task.b), query, q.positions);
  Part sum[Chunks];
  Softmax softmax;
  for (std::int64_t key = queries.lowest / kTile * kTile; key <= query; key += kTile) {
    Part scores;
    multiply_heads(q, query, k, key, a, b, scores);
    FP8_UNROLL
    for (int i = 0; i < kResults; ++i) {
      FP8_UNROLL
      for (int j = 0; j < kResults; ++j)
        scores.at[i][j] =
            queries.meets(i, key, j) ? scores.at[i][j] * call.scale : -std::numeric_limits<float>::infinity();
    }
    softmax.template update<T>(scores);
    FP8_UNROLL
    for (int chunk = 0; chunk < Chunks; ++chunk) {
      FP8_UNROLL
      for (int i = 0; i < kResults; ++i) {
        FP8_UNROLL
        for (int j = 0; j < kResults; ++j) sum[chunk].at[i][j] *= softmax.rescale[i];
      }
    }
    add_products<false>(scores, v, key, a, b, sum);
  }
  softmax.finish();
  float inverse[kResults];
  FP8_UNROLL
  for (int i = 0; i < kResults; ++i) {
    const std::int64_t t = query + first_row() + i;
    inverse[i] = 1.0f / softmax.total[i];
    if (side() == 0 && t < q.positions)
      call.lse[(task.b * call.q.count + task.head) * q.positions + t] = softmax.most[i] + std::log(softmax.total[i]);
  }
  FP8_UNROLL
  for (int chunk = 0; chunk < Chunks; ++chunk)
    write_part(call.out.of(task.b, task.head), query, chunk * kTile, sum[chunk], inverse);
}

// delta of every row, one warp per row.
template <class T>
__global__ void attention_delta_kernel(StridedRows<T> out, StridedRows<T> dout, float* delta) {
  const int warps = kThreads / device::kWarp;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * warps + static_cast<int>(threadIdx.x) / device::kWarp;
       i < out.count(); i += static_cast<std::int64_t>(gridDim.x) * warps) {
    const T *o = out[i], *d = dout[i];
    float sum = 0;
    for (std::int64_t c = static_cast<int>(threadIdx.x) % device::kWarp; c < out.columns(); c += device::kWarp)
      sum = std::fma(to_float(o[c]), to_float(d[c]), sum);
    sum = team_sum<device::kWarp>(sum);
    if (threadIdx.x % device::kWarp == 0) delta[i] = sum;
  }
}

// lse and delta of a thread's four queries of one head.
template <class T>
struct QueryRows {
  float lse[kResults] = {}, delta[kResults] = {};  // zero past the end, where dout is zero too
  __device__ QueryRows(const AttentionCall<T>& call, std::int64_t b, std::int64_t h, std::int64_t query) {
    FP8_UNROLL
    for (int i = 0; i < kResults; ++i) {
      const std::int64_t t = query + first_row() + i, n = call.q.positions;
      if (t >= n) continue;
      lse[i] = call.lse[(b * call.q.count + h) * n + t];
      delta[i] = call.delta[(b * n + t) * call.q.count + h];
    }
  }
  // Replaces scores by probabilities.
  __device__ void probabilities(const Queries& queries, std::int64_t key, float scale, Part& scores) const {
    FP8_UNROLL
    for (int i = 0; i < kResults; ++i) {
      FP8_UNROLL
      for (int j = 0; j < kResults; ++j)
        scores.at[i][j] = queries.meets(i, key, j) ? exp_for<T>(scores.at[i][j] * scale - lse[i]) : 0.0f;
    }
  }
  // Replaces gradients of probabilities by those of scores.
  __device__ void score_gradients(const Part& p, Part& dp) const {
    FP8_UNROLL
    for (int i = 0; i < kResults; ++i) {
      FP8_UNROLL
      for (int j = 0; j < kResults; ++j) dp.at[i][j] = p.at[i][j] * (dp.at[i][j] - delta[i]);
    }
  }
};

template <class T, int Chunks>
__global__ void __launch_bounds__(kThreads, 1) attention_dq_kernel(const __grid_constant__ AttentionCall<T> call) {
  alignas(16) __shared__ TileRow a[kTile], b[kTile];
  const auto task = call.task(call.q.count, true);
  const std::int64_t g = task.head / (call.q.count / call.k.count), query = task.tile * kTile;
  const HeadRows<T> q = call.q.of(task.b, task.head), dout = call.dout.of(task.b, task.head), k = call.k.of(task.b, g),
                    v = call.v.of(task.b, g);
  const Queries queries(call.start_of(task.b), query, q.positions);
  const QueryRows<T> rows(call, task.b, task.head, query);
  Part sum[Chunks];
  for (std::int64_t key = queries.lowest / kTile * kTile; key <= query; key += kTile) {
    Part p, ds;
    multiply_heads(q, query, k, key, a, b, p);
    rows.probabilities(queries, key, call.scale, p);
    multiply_heads(dout, query, v, key, a, b, ds);
    rows.score_gradients(p, ds);
    add_products<false>(ds, k, key, a, b, sum);
  }
  const float scale[kResults] = {call.scale, call.scale, call.scale, call.scale};
  FP8_UNROLL
  for (int chunk = 0; chunk < Chunks; ++chunk)
    write_part(call.dq.of(task.b, task.head), query, chunk * kTile, sum[chunk], scale);
}

template <class T, int Chunks>
__global__ void __launch_bounds__(kThreads, 1) attention_dkv_kernel(const __grid_constant__ AttentionCall<T> call) {
  alignas(16) __shared__ TileRow a[kTile], b[kTile];
  const auto task = call.task(call.k.count, false);
  const HeadRows<T> k = call.k.of(task.b, task.head), v = call.v.of(task.b, task.head);
  const std::int64_t group = call.q.count / call.k.count, key = task.tile * kTile;
  Part dk[Chunks], dv[Chunks];
  for (std::int64_t h = task.head * group; h < (task.head + 1) * group; ++h) {
    const HeadRows<T> q = call.q.of(task.b, h), dout = call.dout.of(task.b, h);
    for (std::int64_t query = key; query < q.positions; query += kTile) {
      const Queries queries(call.start_of(task.b), query, q.positions);
      if (queries.lowest >= key + kTile) continue;  // all queries are in later documents; the same for all threads
      const QueryRows<T> rows(call, task.b, h, query);
      Part p, ds;
      multiply_heads(q, query, k, key, a, b, p);
      rows.probabilities(queries, key, call.scale, p);
      add_products<true>(p, dout, query, a, b, dv);
      multiply_heads(dout, query, v, key, a, b, ds);
      rows.score_gradients(p, ds);
      add_products<true>(ds, q, query, a, b, dk);
    }
  }
  const float scale[kResults] = {call.scale, call.scale, call.scale, call.scale}, one[kResults] = {1, 1, 1, 1};
  FP8_UNROLL
  for (int chunk = 0; chunk < Chunks; ++chunk) {
    write_part(call.dk.of(task.b, task.head), key, chunk * kTile, dk[chunk], scale);
    write_part(call.dv.of(task.b, task.head), key, chunk * kTile, dv[chunk], one);
  }
}

// Calls f with the number of tiles for the elements of a head, as a constant.
template <class F>
void with_chunks(std::int64_t dim, F&& f) {
  if (dim <= kTile) {
    f(std::integral_constant<int, 1>{});
  } else if (dim <= 2 * kTile) {
    f(std::integral_constant<int, 2>{});
  } else {
    f(std::integral_constant<int, 4>{});
  }
}

template <class T>
Heads<T> heads_of(const View& v) {
  return {v, packs(v)};
}

inline const std::int32_t* start_of(const Documents& documents) {
  return documents.start.rank == 0 ? nullptr : documents.start.as<std::int32_t>();
}

// Views checked by attention_forward, heads of at most kWidestHead elements.
template <class Launcher>
void attention_forward_cuda(const Launcher& launch, const AttentionForward& of) {
  if (of.q.size() == 0) return;
  with_float_type(of.q.dtype, "attention", [&]<class T>() {
    const Heads<T> q = heads_of<T>(of.q), k = heads_of<T>(of.k), v = heads_of<T>(of.v), out = heads_of<T>(of.out);
    const AttentionCall<T> call{q,       k, v, out, out, q, k, v, of.lse.as<float>(), nullptr, start_of(of.documents),
                                of.scale};
    const dim3 grid(static_cast<unsigned>(call.tiles() * q.batch * q.count));
    with_chunks(q.dim, [&]<class N>(N) {
      launch("attention", grid, dim3(kThreads), attention_forward_kernel<T, N::value>, call);
    });
  });
}

// Views checked by attention_backward. The kernels write dk and dv to scratch, because the results may overwrite q, k
// and v, which both kernels read.
template <class Launcher>
void attention_backward_cuda(const Launcher& launch, const AttentionBackward& of,
                             const cuda::AttentionScratch& scratch) {
  constexpr const char* kName = "attention backward";
  if (of.q.size() == 0) return;
  with_float_type(of.q.dtype, kName, [&]<class T>() {
    const Heads<T> hq = heads_of<T>(of.q), hk = heads_of<T>(of.k);
    const AttentionCall<T> call{hq,
                                hk,
                                heads_of<T>(of.v),
                                heads_of<T>(of.out),
                                heads_of<T>(of.dout),
                                heads_of<T>(of.dq),
                                heads_of<T>(scratch.dk),
                                heads_of<T>(scratch.dv),
                                of.lse.as<float>(),
                                scratch.delta.as<float>(),
                                start_of(of.documents),
                                of.scale};
    const StridedRows<T> out_rows(of.out);
    const std::int64_t blocks = std::min(divide_up(out_rows.count(), kThreads / device::kWarp),
                                         std::int64_t{launch.multiprocessors()} * kBlocksEach);
    launch(kName, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), attention_delta_kernel<T>, out_rows,
           StridedRows<T>(of.dout), call.delta);
    const std::int64_t tiles = call.tiles() * hq.batch;
    with_chunks(hq.dim, [&]<class N>(N) {
      launch(kName, dim3(static_cast<unsigned>(tiles * hk.count)), dim3(kThreads), attention_dkv_kernel<T, N::value>,
             call);
      launch(kName, dim3(static_cast<unsigned>(tiles * hq.count)), dim3(kThreads), attention_dq_kernel<T, N::value>,
             call);
    });
  });
  copy_cuda(launch, scratch.dk, of.dk);
  copy_cuda(launch, scratch.dv, of.dv);
}

}  // namespace fp8::ops
