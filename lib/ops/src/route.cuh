// Mixtures of experts on a device. A warp routes a token, with the arithmetic and the order of sums of the host. The
// order of rows is a stable counting sort without atomics: each block counts the experts of its tokens, a block for
// each expert adds the counts of the blocks before, and each block numbers its rows; a thread reads all its block's
// choices in order for one expert.
#pragma once

#include <limits>

#include "cuda.h"
#include "rows.cuh"
#include "vector_math.h"

namespace fp8::ops {

inline constexpr int kRouteKeys = 1024;                       // choices in shared memory at once
inline constexpr int kRouteWarps = kThreads / device::kWarp;  // tokens that a block routes at once
static_assert(cuda::kRouteBlocks <= kThreads);

// Arguments of the kernels: the views of Routes and their sizes.
struct RoutesOf {
  float *probabilities, *log_sums, *weights;
  std::int32_t *experts, *rows, *tokens, *counts;
  std::int32_t m, n, k, each;  // tokens, experts, experts of a token, tokens of a block

  explicit RoutesOf(const Routes& r)
      : probabilities(r.probabilities.as<float>()),
        log_sums(r.log_sums.as<float>()),
        weights(r.weights.as<float>()),
        experts(r.experts.as<std::int32_t>()),
        rows(r.rows.as<std::int32_t>()),
        tokens(r.tokens.as<std::int32_t>()),
        counts(r.counts.as<std::int32_t>()),
        m(static_cast<std::int32_t>(r.experts.shape[0])),
        n(static_cast<std::int32_t>(r.probabilities.shape[1])),
        k(static_cast<std::int32_t>(r.per_token())),
        each(static_cast<std::int32_t>(divide_up(r.experts.shape[0], cuda::route_blocks(r.experts.shape[0])))) {}
  __device__ std::int32_t begin(unsigned block) const {
    const std::int64_t first = std::int64_t{block} * each;
    return first < m ? static_cast<std::int32_t>(first) : m;
  }
};

__device__ inline int warp_of_thread() { return static_cast<int>(threadIdx.x) / device::kWarp; }
__device__ inline int lane_of_thread() { return static_cast<int>(threadIdx.x) % device::kWarp; }

// p = softmax of x, by a warp; returns the logarithm of the sum of the exponentials.
__device__ inline float warp_softmax(const float* x, float* p, std::int32_t n) {
  float shift = -std::numeric_limits<float>::infinity(), sum = 0;
  for (std::int32_t e = lane_of_thread(); e < n; e += device::kWarp) shift = x[e] > shift ? x[e] : shift;
  shift = device::warp_combine(shift, Larger{});
  for (std::int32_t e = lane_of_thread(); e < n; e += device::kWarp) {
    const float v = exp_rounded(x[e] - shift);
    p[e] = v;
    sum += v;
  }
  sum = device::warp_combine(sum, device::Add{});
  for (std::int32_t e = lane_of_thread(); e < n; e += device::kWarp) p[e] /= sum;
  return static_cast<float>(static_cast<double>(shift) + std::log(static_cast<double>(sum)));
}

// A number that orders experts by probability, the first one largest; equal probabilities and NaN by the expert's
// number.
__device__ inline std::uint64_t rank_of(float p, std::int32_t e) {
  const std::uint64_t bits = p >= 0 ? std::bit_cast<std::uint32_t>(p) : 0;
  return bits << 32 | (0xFFFFFFFFu - static_cast<std::uint32_t>(e));
}

// The k first experts in the order of rank_of(), ascending, and their probabilities, by a warp; `list` has k elements.
__device__ inline void warp_choose(const float* p, std::int32_t n, std::int32_t k, std::int32_t* list,
                                   std::int32_t* experts, float* weights) {
  std::uint64_t last = ~std::uint64_t{0};
  for (std::int32_t j = 0; j < k; ++j) {
    std::uint64_t best = 0;
    for (std::int32_t e = lane_of_thread(); e < n; e += device::kWarp) {
      const std::uint64_t rank = rank_of(p[e], e);
      if (rank < last && rank > best) best = rank;
    }
    last = device::warp_combine(best, Larger{});
    if (lane_of_thread() == 0) list[j] = static_cast<std::int32_t>(0xFFFFFFFFu - static_cast<std::uint32_t>(last));
  }
  __syncwarp();
  for (std::int32_t j = lane_of_thread(); j < k; j += device::kWarp) {
    const std::int32_t e = list[j];
    std::int32_t before = 0;
    for (std::int32_t i = 0; i < k; ++i) before += list[i] < e ? 1 : 0;
    experts[before] = e;
    weights[before] = p[e];
  }
  __syncwarp();
}

__device__ inline void warp_normalize(float* weights, std::int32_t k) {
  float sum = 0;
  for (std::int32_t j = 0; j < k; ++j) sum += weights[j];
  __syncwarp();
  for (std::int32_t j = lane_of_thread(); j < k; j += device::kWarp) weights[j] /= sum;
}

__device__ inline void route_token(const float* logits, bool routed, bool normalize, const RoutesOf& r,
                                   std::int64_t token) {
  float *p = r.probabilities + token * r.n, *weights = r.weights + token * r.k;
  std::int32_t* const experts = r.experts + token * r.k;
  float log_sum = 0;
  if (routed) {
    log_sum = warp_softmax(logits, p, r.n);
    warp_choose(p, r.n, r.k, r.rows + token * r.k, experts, weights);
    if (normalize) warp_normalize(weights, r.k);
  } else {
    for (std::int32_t e = lane_of_thread(); e < r.n; e += device::kWarp) p[e] = 0;
    for (std::int32_t j = lane_of_thread(); j < r.k; j += device::kWarp) weights[j] = 0, experts[j] = -1;
  }
  if (lane_of_thread() == 0) r.log_sums[token] = log_sum;
}

// Calls visit(at) for each at in [begin, end) with experts[at] = mine, ascending. All threads of the block call it.
template <int Threads, class Visit>
__device__ void each_choice(const std::int32_t* experts, std::int32_t begin, std::int32_t end, std::int32_t mine,
                            const Visit& visit) {
  __shared__ std::int32_t keys[kRouteKeys];
  for (std::int32_t first = begin; first < end; first += kRouteKeys) {
    const std::int32_t n = end - first < kRouteKeys ? end - first : kRouteKeys;
    __syncthreads();
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < n; i += Threads) keys[i] = experts[first + i];
    __syncthreads();
    for (std::int32_t i = 0; i < n; ++i)
      if (keys[i] == mine) visit(first + i);
  }
}

// Routes the tokens of each block; of_blocks[block][e] = rows of expert e in the block.
template <int Threads>
__global__ void route_kernel(const float* logits, const std::int32_t* lengths, std::int32_t length,
                             std::int32_t first_token, bool normalize, RoutesOf r, std::int32_t* of_blocks) {
  const std::int32_t begin = r.begin(blockIdx.x), end = r.begin(blockIdx.x + 1);
  for (std::int32_t i = begin + warp_of_thread(); i < end; i += kRouteWarps) {
    const std::int32_t token = first_token + i;
    const bool routed = lengths == nullptr || token % length < lengths[token / length];
    route_token(logits + std::int64_t{i} * r.n, routed, normalize, r, i);
  }
  __syncthreads();
  for (std::int32_t first = 0; first < r.n; first += Threads) {
    const std::int32_t e = first + static_cast<std::int32_t>(threadIdx.x);
    std::int32_t count = 0;
    each_choice<Threads>(r.experts, begin * r.k, end * r.k, e, [&count](std::int32_t) { ++count; });
    if (e < r.n) of_blocks[std::int64_t{blockIdx.x} * r.n + e] = count;
  }
}

// Turns the counts of blocks into the rows of the expert in the blocks before; counts[e] = all. A block for an expert.
template <int Threads>
__global__ void expert_counts_kernel(std::int32_t* of_blocks, std::int32_t blocks, std::int32_t n,
                                     std::int32_t* counts) {
  __shared__ std::int32_t of_block[Threads];
  const auto b = static_cast<std::int32_t>(threadIdx.x);
  std::int32_t* const at = of_blocks + std::int64_t{b} * n + blockIdx.x;
  const std::int32_t mine = b < blocks ? *at : 0;
  of_block[b] = mine;
  __syncthreads();
  std::int32_t before = 0;
  for (std::int32_t i = 0; i < b; ++i) before += of_block[i];
  if (b < blocks) *at = before;
  if (b == Threads - 1) counts[blockIdx.x] = before + mine;
}

// Numbers the rows of each block's tokens; the rows that are left over have token -1.
template <int Threads>
__global__ void number_rows_kernel(RoutesOf r, const std::int32_t* of_blocks) {
  const std::int32_t begin = r.begin(blockIdx.x) * r.k, end = r.begin(blockIdx.x + 1) * r.k;
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  std::int32_t used = 0;
  for (std::int32_t first = 0; first < r.n; first += Threads) {
    const std::int32_t e = first + thread;
    std::int32_t row = e < r.n ? of_blocks[std::int64_t{blockIdx.x} * r.n + e] : 0;
    used = 0;
    for (std::int32_t f = 0; f < r.n; ++f) {
      const std::int32_t count = r.counts[f];
      row += f < e ? count : 0;
      used += count;
    }
    each_choice<Threads>(r.experts, begin, end, e, [&row, &r](std::int32_t at) {
      r.rows[at] = row;
      r.tokens[row++] = at / r.k;
    });
  }
  for (std::int32_t at = begin + thread; at < end; at += Threads)
    if (r.experts[at] < 0) r.rows[at] = -1;
  const auto step = static_cast<std::int32_t>(gridDim.x) * Threads;
  for (std::int32_t row = used + static_cast<std::int32_t>(blockIdx.x) * Threads + thread; row < r.m * r.k; row += step)
    r.tokens[row] = -1;
}

// Views checked by route_forward(); scratch i32 [route_blocks(M), E].
template <class Launcher>
void route_forward_cuda(const Launcher& launch, const View& logits, const RouteOptions& options, const Routes& routes,
                        const View& scratch) {
  constexpr const char* kName = "route";
  const RoutesOf r(routes);
  auto* const of_blocks = scratch.as<std::int32_t>();
  const auto blocks = static_cast<unsigned>(scratch.shape[0]);
  const auto* const lengths = options.lengths.empty() ? nullptr : options.lengths.as<const std::int32_t>();
  const auto length = static_cast<std::int32_t>(options.length);
  launch(kName, dim3(blocks), dim3(kThreads), route_kernel<kThreads>, logits.as<const float>(), lengths, length,
         static_cast<std::int32_t>(options.first), options.normalize, r, of_blocks);
  launch(kName, dim3(static_cast<unsigned>(r.n)), dim3(kThreads), expert_counts_kernel<kThreads>, of_blocks,
         static_cast<std::int32_t>(blocks), r.n, r.counts);
  launch(kName, dim3(blocks), dim3(kThreads), number_rows_kernel<kThreads>, r, of_blocks);
}

// partial[blockIdx.y][c] = sum over the block's tokens of a summand of add_route_sums(). Warps alternate tokens, a lane
// has one column.
template <int Threads>
__global__ void route_sums_kernel(RoutesOf r, double* partial) {
  __shared__ double sums[Threads / device::kWarp][device::kWarp];
  const std::int32_t c = static_cast<std::int32_t>(blockIdx.x) * device::kWarp + lane_of_thread();
  double sum = 0;
  for (std::int64_t i = r.begin(blockIdx.y) + warp_of_thread(); i < r.begin(blockIdx.y + 1);
       i += Threads / device::kWarp) {
    const double z = static_cast<double>(r.log_sums[i]);
    if (c < r.n) {
      sum += static_cast<double>(r.probabilities[i * r.n + c]);
    } else {
      sum += c == r.n ? z * z : r.experts[i * r.k] < 0 ? 0 : 1;
    }
  }
  sums[warp_of_thread()][lane_of_thread()] = sum;
  __syncthreads();
  if (warp_of_thread() != 0 || c >= r.n + 2) return;
  for (int w = 1; w < Threads / device::kWarp; ++w) sum += sums[w][lane_of_thread()];
  partial[std::int64_t{blockIdx.y} * (r.n + 2) + c] = sum;
}

// sums[c] += sum over blocks of partial[block][c].
template <int Threads>
__global__ void route_totals_kernel(const double* partial, std::int32_t blocks, std::int32_t columns, double* sums) {
  const auto c = static_cast<std::int32_t>(blockIdx.x * Threads + threadIdx.x);
  if (c >= columns) return;
  double sum = 0;
  FP8_UNROLL_BY_4
  for (std::int32_t b = 0; b < blocks; ++b) sum += partial[std::int64_t{b} * columns + c];
  sums[c] += sum;
}

// Views checked by add_route_sums(); scratch f64 [route_blocks(M), E + 2].
template <class Launcher>
void add_route_sums_cuda(const Launcher& launch, const Routes& routes, const View& sums, const View& scratch) {
  constexpr const char* kName = "sums of routes";
  const RoutesOf r(routes);
  auto* const partial = scratch.as<double>();
  const auto blocks = static_cast<unsigned>(scratch.shape[0]);
  launch(kName, dim3(device::blocks_for(r.n + 2, device::kWarp), blocks), dim3(kThreads), route_sums_kernel<kThreads>,
         r, partial);
  launch(kName, dim3(device::blocks_for(r.n + 2, kThreads)), dim3(kThreads), route_totals_kernel<kThreads>, partial,
         static_cast<std::int32_t>(blocks), r.n + 2, sums.as<double>());
}

// The gradients of the logits, a warp for a token; see the host's route_gradient().
template <int Threads>
__global__ void route_gradient_kernel(const float* dweights, RoutesOf r, bool normalize, const float* aux, float z,
                                      float* dlogits) {
  const std::int64_t i = std::int64_t{blockIdx.x} * (Threads / device::kWarp) + warp_of_thread();
  if (i >= r.m) return;
  float* const out = dlogits + i * r.n;
  const float *p = r.probabilities + i * r.n, *weights = r.weights + i * r.k, *dw = dweights + i * r.k;
  const std::int32_t* const experts = r.experts + i * r.k;
  if (experts[0] < 0) {
    for (std::int32_t e = lane_of_thread(); e < r.n; e += device::kWarp) out[e] = 0;
    return;
  }
  float mean = 0, all = 0;
  for (std::int32_t j = 0; j < r.k; ++j) mean += weights[j] * dw[j];
  if (aux != nullptr) {
    for (std::int32_t e = lane_of_thread(); e < r.n; e += device::kWarp) all += p[e] * aux[e];
    all = device::warp_combine(all, device::Add{});
  }
  const float of_z = 2.0f * z * r.log_sums[i];
  all = (normalize ? -of_z : mean - of_z) + all;
  for (std::int32_t e = lane_of_thread(); e < r.n; e += device::kWarp)
    out[e] = p[e] * ((aux == nullptr ? 0.0f : aux[e]) - all);
  __syncwarp();
  for (std::int32_t j = lane_of_thread(); j < r.k; j += device::kWarp) {
    const std::int32_t e = experts[j];
    out[e] = normalize ? out[e] + weights[j] * (dw[j] - mean) : p[e] * ((aux == nullptr ? 0.0f : aux[e]) + dw[j] - all);
  }
}

// Views checked by route_backward().
template <class Launcher>
void route_backward_cuda(const Launcher& launch, const View& dweights, const Routes& routes, bool normalize,
                         const BalanceGradients& balance, const View& dlogits) {
  const RoutesOf r(routes);
  launch("route backward", dim3(device::blocks_for(r.m, kRouteWarps)), dim3(kThreads), route_gradient_kernel<kThreads>,
         dweights.as<const float>(), r, normalize, balance.aux.empty() ? nullptr : balance.aux.as<const float>(),
         balance.z, dlogits.as<float>());
}

}  // namespace fp8::ops
