// Tables of packed documents for cuDNN, from the start of the document at every position, and the transposition of its
// statistics. The thread of the last position of a document writes its entry. The index of the entry is the number of
// documents that end before, which every block counts itself, since there are few positions.
#pragma once

#include "attention_tiles.cuh"
#include "cuda.h"

namespace fp8::ops {

inline constexpr int kScan = 1024;         // threads of a block, one per position
inline constexpr int kTransposeTile = 32;  // side of a transposed tile

struct DocumentTable {
  const std::int32_t* start;          // [sequences, positions]
  unsigned total, positions;          // tokens of all sequences, and of one
  std::int64_t each, parts, longest;  // entries of a part, parts, and maximum length
  std::int32_t* lengths;
  std::int64_t* offsets;
  std::int64_t lengths_pitch, offsets_pitch;  // distance from one part to the next
  int arrays;                                 // number of arrays of offsets
  std::array<std::array<std::int64_t, 2>, 9> steps;
  Heads<Bf16> results[3];

  __device__ std::int64_t entries() const { return parts * each; }
  // Whether position i of all sequences is the last of its document.
  __device__ bool ends(unsigned i) const {
    const unsigned t = i % positions;
    return t + 1 == positions || start[i + 1] > static_cast<std::int32_t>(t);
  }
  __device__ std::int32_t length(unsigned i) const {
    const unsigned t = i % positions;
    return static_cast<std::int32_t>(t) - Queries::first_key(start + (i - t), t, positions) + 1;
  }
  // Writes entry n, a document of `length` positions from position t of sequence b on, and the end of the previous
  // part.
  __device__ void write(std::int64_t n, std::int64_t b, std::int64_t t, std::int64_t length) const {
    const std::int64_t part = n / each, at = n % each;
    if (n > entries()) return;
    if (n < entries())
      lengths[part * lengths_pitch + at] = static_cast<std::int32_t>(length < longest ? length : longest);
    for (int a = 0; a < arrays; ++a) {
      const auto k = static_cast<std::size_t>(a);
      const std::int64_t offset = b * steps[k][0] + t * steps[k][1];
      std::int64_t* array = offsets + a * parts * offsets_pitch;
      if (n < entries()) array[part * offsets_pitch + at] = offset;
      if (at == 0 && part > 0) array[(part - 1) * offsets_pitch + each] = offset;
    }
  }
};

// The number of documents and the longest length.
struct Found {
  std::int32_t count = 0, longest = 0;
  __device__ void add(std::int32_t length) {
    ++count;
    longest = length > longest ? length : longest;
  }
};

// Sums over the threads before this one and over all of the block.
struct Prefix {
  std::int32_t before, all;
};
__device__ inline Prefix block_prefix(std::int32_t v) {
  __shared__ std::int32_t of_warp[kScan / device::kWarp];
  const int lane = static_cast<int>(threadIdx.x) % device::kWarp, warp = static_cast<int>(threadIdx.x) / device::kWarp;
  std::int32_t sum = v;
  for (int distance = 1; distance < device::kWarp; distance *= 2) {
    const std::int32_t other = __shfl_sync(device::kAllLanes, sum, lane < distance ? lane : lane - distance);
    if (lane >= distance) sum += other;
  }
  if (lane == device::kWarp - 1) of_warp[warp] = sum;
  __syncthreads();
  Prefix prefix{sum - v, 0};
  for (int w = 0; w < kScan / device::kWarp; ++w) {
    if (w < warp) prefix.before += of_warp[w];
    prefix.all += of_warp[w];
  }
  return prefix;
}

// Sets all elements to NaN, with one block.
__device__ inline void fill_nan(const Heads<Bf16>& heads) {
  const Bf16 nan = from_float<Bf16>(std::numeric_limits<float>::quiet_NaN());
  const std::int64_t rows = heads.batch * heads.positions * heads.count;
  for (std::int64_t i = static_cast<int>(threadIdx.x); i < rows * heads.dim; i += kScan) {
    std::int64_t d = 0, h = 0, t = 0;
    const std::int64_t b = divide(divide(divide(i, heads.dim, d), heads.count, h), heads.positions, t);
    heads.of(b, h).at(t)[d] = nan;
  }
}

__global__ static void __launch_bounds__(kScan, 1)
    attention_documents_kernel(const __grid_constant__ DocumentTable table) {
  const unsigned first = blockIdx.x * kScan, i = first + threadIdx.x;
  Found found;
  FP8_UNROLL_BY_4
  for (unsigned before = threadIdx.x; before < first; before += kScan)
    if (table.ends(before)) found.add(table.length(before));
  const std::int32_t count = device::block_combine<kScan>(found.count, device::Add{});
  const bool ends = i < table.total && table.ends(i);
  const Prefix here = block_prefix(ends ? 1 : 0);
  if (ends) {
    const std::int32_t length = table.length(i), t = static_cast<std::int32_t>(i % table.positions) + 1 - length;
    table.write(count + here.before, i / table.positions, t, length);
    found.add(length);
  }
  if (blockIdx.x + 1 < gridDim.x) return;
  const std::int64_t all = count + here.all;
  for (std::int64_t n = all + static_cast<int>(threadIdx.x); n <= table.entries(); n += kScan)
    table.write(n, table.total / table.positions - 1, table.positions, 0);
  const std::int32_t longest = device::block_combine<kScan>(found.longest, Larger{});
  if (all <= table.entries() && longest <= table.longest) return;
  for (const Heads<Bf16>& heads : table.results) fill_nan(heads);
}

// to [columns, rows] = transposed from [rows, columns] for each batch, one tile per block.
__global__ static void transpose_kernel(const float* from, float* to, std::int64_t rows, std::int64_t columns) {
  __shared__ float tile[kTransposeTile][kTransposeTile + 1];
  std::int64_t down = 0, across = 0;
  const std::int64_t b =
      divide(divide(blockIdx.x, divide_up(columns, kTransposeTile), across), divide_up(rows, kTransposeTile), down);
  const int x = static_cast<int>(threadIdx.x) % kTransposeTile, y = static_cast<int>(threadIdx.x) / kTransposeTile;
  const std::int64_t row = down * kTransposeTile, column = across * kTransposeTile, matrix = b * rows * columns;
  for (int k = y; k < kTransposeTile; k += kThreads / kTransposeTile)
    if (row + k < rows && column + x < columns) tile[k][x] = from[matrix + (row + k) * columns + column + x];
  __syncthreads();
  for (int k = y; k < kTransposeTile; k += kThreads / kTransposeTile)
    if (column + k < columns && row + x < rows) to[matrix + (column + k) * rows + row + x] = tile[x][k];
}

// See cuda::attention_documents.
template <class Launcher>
void attention_documents_cuda(const Launcher& launch, const Documents& documents, const cuda::DocumentTables& tables) {
  const View& start = documents.start;
  const auto heads = [&](std::size_t i) { return Heads<Bf16>(tables.results[i], false); };
  const DocumentTable table{start.as<std::int32_t>(),
                            static_cast<unsigned>(start.size()),
                            static_cast<unsigned>(start.shape[1]),
                            tables.each,
                            tables.lengths.shape[0],
                            tables.longest,
                            tables.lengths.as<std::int32_t>(),
                            tables.offsets.as<std::int64_t>(),
                            tables.lengths.stride[0],
                            tables.offsets.stride[1],
                            static_cast<int>(tables.offsets.shape[0]),
                            tables.steps,
                            {heads(0), heads(1), heads(2)}};
  launch("attention", dim3(device::blocks_for(start.size(), kScan)), dim3(kScan), attention_documents_kernel, table);
}

// See cuda::transpose.
template <class Launcher>
void transpose_cuda(const Launcher& launch, const View& from, const View& to) {
  const std::int64_t rows = from.shape[1], columns = from.shape[2];
  const dim3 grid(
      static_cast<unsigned>(from.shape[0] * divide_up(rows, kTransposeTile) * divide_up(columns, kTransposeTile)));
  launch("attention", grid, dim3(kThreads), transpose_kernel, from.as<float>(), to.as<float>(), rows, columns);
}

}  // namespace fp8::ops
