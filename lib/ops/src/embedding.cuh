// Embedding on a device. The backward pass must add the rows of one id in the order of the tokens, so tokens are sorted
// by id first: the index of a token is the number of tokens before it, counted by comparing all pairs. This needs no
// atomics on floats, no table of the size of the vocabulary, and for 32k tokens fewer operations than one row of a
// GEMM. Then one block adds all rows of an id.
#pragma once

#include <limits>

#include "elementwise.cuh"

namespace fp8::ops {

// Rows of the table. An id outside of the table gives NaN, so that the step is detected as non-finite, or, of a part of
// the vocabulary, zeros.
template <class A, class B>
struct EmbeddingForward {
  const std::int32_t* tokens;
  StridedRows<A> table;
  StridedRows<B> out;
  std::int64_t first;
  float missing;
  struct Row {
    const A* from;  // source row, or null if there is none
    B* out;
    float missing;
    template <int W>
    __device__ void at(std::int64_t c) const {
      if (from != nullptr) return convert<W>(from + c, out + c);
      for (int j = 0; j < W; ++j) out[c + j] = from_float<B>(missing);
    }
  };
  __device__ Row row(std::int64_t i) const {
    const std::int64_t id = tokens[i] - first;
    return {id >= 0 && id < table.count() ? table[id] : nullptr, out[i], missing};
  }
};

// Views checked by embedding_forward.
template <class Launcher>
void embedding_forward_cuda(const Launcher& launch, const View& tokens, const View& table, const View& out,
                            const VocabularyPart& part) {
  const float missing = part.part ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  with_float_type(table.dtype, "embedding", [&]<class A>() {
    with_float_type(out.dtype, "embedding", [&]<class B>() {
      const EmbeddingForward<A, B> op{tokens.as<std::int32_t>(), StridedRows<A>(table), StridedRows<B>(out), part.first,
                                      missing};
      for_each(launch, "embedding", op, out.shape[0], out.shape[1], packs(table) && packs(out));
    });
  });
}

inline constexpr int kKeys = 1024;       // tokens in shared memory at once
inline constexpr int kKeysOfBlock = 16;  // times kKeys tokens that a block compares with

// rank[i] += number of tokens in the block's range that precede token i in the order of (id, position).
template <int Threads>
__global__ void rank_kernel(const std::int32_t* tokens, std::int32_t count, std::int32_t* rank) {
  __shared__ std::int32_t keys[kKeys];
  const auto i = static_cast<std::int32_t>(blockIdx.x * Threads + threadIdx.x);
  const std::int32_t mine = i < count ? tokens[i] : 0;
  std::int32_t before = 0;
  for (int round = 0; round < kKeysOfBlock; ++round) {
    const std::int64_t first = (std::int64_t{blockIdx.y} * kKeysOfBlock + round) * kKeys;
    if (first >= count) break;
    const int n = count - first < kKeys ? static_cast<int>(count - first) : kKeys;
    __syncthreads();
    for (int k = static_cast<int>(threadIdx.x); k < n; k += Threads) keys[k] = tokens[first + k];
    __syncthreads();
    // Equal ids precede token i if their position does: keys [0, earlier).
    const std::int64_t ahead = i - first;
    const int earlier = ahead <= 0 ? 0 : ahead < n ? static_cast<int>(ahead) : n;
    for (int k = 0; k < earlier; ++k) before += keys[k] <= mine ? 1 : 0;
    for (int k = earlier; k < n; ++k) before += keys[k] < mine ? 1 : 0;
  }
  if (i < count && before > 0) atomicAdd(rank + i, before);
}

// order[rank[i]] = i, sorted[rank[i]] = id of token i.
template <int Threads>
__global__ void order_kernel(const std::int32_t* tokens, const std::int32_t* rank, std::int32_t count,
                             std::int32_t* order, std::int32_t* sorted) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * Threads + threadIdx.x);
  if (i >= count) return;
  order[rank[i]] = i;
  sorted[rank[i]] = tokens[i];
}

// Adds the rows of dout of a run of equal ids, which begins at `first`, to the id's row of dtable in order.
template <class T>
struct EmbeddingBackward {
  const std::int32_t *order, *sorted;
  StridedRows<T> dout;
  StridedRows<float> dtable;
  std::int64_t first_token;
  struct Row {
    const std::int32_t *order, *sorted;
    StridedRows<T> dout;
    float* to;  // target row, or null if this is not the first row of a run
    std::int64_t first;
    template <int W>
    __device__ void at(std::int64_t c) const {
      constexpr int kAhead = 8;  // rows in flight
      if (to == nullptr) return;
      const std::int32_t id = sorted[first];
      const std::int64_t last = dout.count() - 1;
      Group<float, W> sum = load<W>(to + c);
      int n = kAhead;  // number of these rows in the run
      for (std::int64_t p = first; n == kAhead; p += kAhead) {
        Group<T, W> rows[kAhead];
        n = 0;
        FP8_UNROLL
        for (int k = 0; k < kAhead; ++k) {
          const std::int64_t q = p + k < last ? p + k : last;
          n += p + k <= last && sorted[q] == id ? 1 : 0;
          rows[k] = load<W>(dout[order[q]] + c);
        }
        FP8_UNROLL
        for (int k = 0; k < kAhead; ++k) {
          FP8_UNROLL
          for (int j = 0; j < W; ++j) sum.at[j] = k < n ? sum.at[j] + to_float(rows[k].at[j]) : sum.at[j];
        }
      }
      store<W>(to + c, sum);
    }
  };
  __device__ Row row(std::int64_t p) const {
    const std::int64_t id = sorted[p] - first_token;
    const bool begins = id >= 0 && id < dtable.count() && (p == 0 || sorted[p - 1] != sorted[p]);
    return {order, sorted, dout, begins ? dtable[id] : nullptr, p};
  }
};

// Views checked by embedding_backward; scratch i32 [3, M].
template <class Launcher>
void embedding_backward_cuda(const Launcher& launch, const View& tokens, const View& dout, const View& dtable,
                             const VocabularyPart& part, const View& scratch) {
  constexpr const char* kName = "embedding backward";
  const std::int64_t count = tokens.shape[0];
  if (count == 0) return;
  const auto* ids = tokens.as<std::int32_t>();
  std::int32_t *rank = scratch.as<std::int32_t>(), *order = rank + count, *sorted = order + count;
  zero_cuda(launch, scratch.rows(0, 1));
  const auto blocks = device::blocks_for(count, kThreads);
  const dim3 all(blocks, device::blocks_for(count, std::int64_t{kKeys} * kKeysOfBlock));
  launch(kName, all, dim3(kThreads), rank_kernel<kThreads>, ids, count, rank);
  launch(kName, dim3(blocks), dim3(kThreads), order_kernel<kThreads>, ids, rank, count, order, sorted);
  with_float_type(dout.dtype, kName, [&]<class T>() {
    const EmbeddingBackward<T> op{order, sorted, StridedRows<T>(dout), StridedRows<float>(dtable), part.first};
    for_each(launch, kName, op, count, dout.shape[1], packs(dout) && packs(dtable));
  });
}

}  // namespace fp8::ops
