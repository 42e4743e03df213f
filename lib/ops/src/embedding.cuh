// Embedding on a device. Backward must add the rows of one token in the order of the tokens. So tokens are first sorted
// by id: a token's place is the number of tokens that come before it, counted by comparing all with all, which needs no
// atomics on floats, no table of the vocabulary's size, and for 32k tokens fewer operations than one row of a matrix
// multiply. Then one block has all rows of an id.
#pragma once

#include <limits>

#include "elementwise.cuh"

namespace fp8::ops {

// Rows of the table; an id outside of it, which the data should not hold, gives NaN, so that the step is found not
// finite.
template <class A, class B>
struct EmbeddingForward {
  const std::int32_t* tokens;
  StridedRows<A> table;
  StridedRows<B> out;
  struct Row {
    const A* from;  // null: no such row
    B* out;
    template <int W>
    __device__ void at(std::int64_t c) const {
      if (from != nullptr) return convert<W>(from + c, out + c);
      for (int j = 0; j < W; ++j) out[c + j] = from_float<B>(std::numeric_limits<float>::quiet_NaN());
    }
  };
  __device__ Row row(std::int64_t i) const {
    const std::int64_t id = tokens[i];
    return {id >= 0 && id < table.count() ? table[id] : nullptr, out[i]};
  }
};

// Views as embedding_forward has checked them.
template <class Launcher>
void embedding_forward_cuda(const Launcher& launch, const View& tokens, const View& table, const View& out) {
  with_activation_type(table.dtype, "embedding", [&]<class A>(A) {
    with_activation_type(out.dtype, "embedding", [&]<class B>(B) {
      const EmbeddingForward<A, B> op{tokens.as<std::int32_t>(), StridedRows<A>(table), StridedRows<B>(out)};
      for_each(launch, "embedding", op, out.shape[0], out.shape[1], packs(table) && packs(out));
    });
  });
}

inline constexpr int kKeys = 1024;       // tokens in shared memory at once
inline constexpr int kKeysOfBlock = 16;  // times kKeys tokens that a block compares its own with

// place[i] += how many of the block's range of tokens come before token i in the order of (id, position).
template <int Threads>
__global__ void place_kernel(const std::int32_t* tokens, std::int32_t count, std::int32_t* place) {
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
    // Of tokens before i equal ids count too: below, those of keys [0, earlier).
    const std::int64_t ahead = i - first;
    const int earlier = ahead <= 0 ? 0 : ahead < n ? static_cast<int>(ahead) : n;
    for (int k = 0; k < earlier; ++k) before += keys[k] <= mine ? 1 : 0;
    for (int k = earlier; k < n; ++k) before += keys[k] < mine ? 1 : 0;
  }
  if (i < count && before > 0) atomicAdd(place + i, before);
}

// order[place[i]] = i, sorted[place[i]] = id of token i.
template <int Threads>
__global__ void order_kernel(const std::int32_t* tokens, const std::int32_t* place, std::int32_t count,
                             std::int32_t* order, std::int32_t* sorted) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * Threads + threadIdx.x);
  if (i >= count) return;
  order[place[i]] = i;
  sorted[place[i]] = tokens[i];
}

// A run of equal ids begins at `first`: their rows of dout are added to the id's row of dtable in order.
template <class T>
struct EmbeddingBackward {
  const std::int32_t *order, *sorted;
  StridedRows<T> dout;
  StridedRows<float> dtable;
  struct Row {
    const std::int32_t *order, *sorted;
    StridedRows<T> dout;
    float* to;  // null: no run begins here
    std::int64_t first;
    template <int W>
    __device__ void at(std::int64_t c) const {
      constexpr int kAhead = 8;  // rows in flight
      if (to == nullptr) return;
      const std::int32_t id = sorted[first];
      const std::int64_t last = dout.count() - 1;
      Group<float, W> sum = load<W>(to + c);
      int n = kAhead;  // of these rows belong to the run
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
    const std::int32_t id = sorted[p];
    const bool begins = id >= 0 && id < dtable.count() && (p == 0 || sorted[p - 1] != id);
    return {order, sorted, dout, begins ? dtable[id] : nullptr, p};
  }
};

// Views as embedding_backward has checked them; scratch i32 [3, M].
template <class Launcher>
void embedding_backward_cuda(const Launcher& launch, const View& tokens, const View& dout, const View& dtable,
                             const View& scratch) {
  constexpr const char* kName = "embedding backward";
  const std::int64_t count = tokens.shape[0];
  if (count == 0) return;
  const auto* ids = tokens.as<std::int32_t>();
  std::int32_t *place = scratch.as<std::int32_t>(), *order = place + count, *sorted = order + count;
  zero_cuda(launch, scratch.rows(0, 1));
  const auto blocks = device::blocks_for(count, kThreads);
  const dim3 all(blocks, device::blocks_for(count, std::int64_t{kKeys} * kKeysOfBlock));
  launch(kName, all, dim3(kThreads), place_kernel<kThreads>, ids, count, place);
  launch(kName, dim3(blocks), dim3(kThreads), order_kernel<kThreads>, ids, place, count, order, sorted);
  with_activation_type(dout.dtype, kName, [&]<class T>(T) {
    const EmbeddingBackward<T> op{order, sorted, StridedRows<T>(dout), StridedRows<float>(dtable)};
    for_each(launch, kName, op, count, dout.shape[1], packs(dout) && packs(dtable));
  });
}

}  // namespace fp8::ops
