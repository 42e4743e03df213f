/// Column sums of a matrix in two passes and a fixed order: blocks of rows to partial sums, then partial sums to the
/// result. For gradients of weights that all rows share.
#pragma once

#include "cuda.h"
#include "rows.cuh"

namespace fp8::ops {

inline constexpr int kRowWarps = kThreads / device::kWarp;  ///< rows that a block reads at once
inline constexpr int kTotalWarps = 16;                      ///< warps of the second pass, which has few blocks

/// partial[blockIdx.y][c] = sum over rows [blockIdx.y each, ...) of the summands of source.row(i).add<W>(c, sums). A
/// lane has W columns; warps alternate rows.
template <int W, class Source>
__global__ void column_partials_kernel(Source source, std::int64_t rows, std::int64_t columns, std::int64_t each,
                                       float* partial) {
  alignas(16) __shared__ float sums[kRowWarps][device::kWarp * W];  // sums of whole groups
  const int warp = static_cast<int>(threadIdx.x) / device::kWarp, lane = static_cast<int>(threadIdx.x) % device::kWarp;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * device::kWarp * W, c = first + lane * W;
  const std::int64_t begin = blockIdx.y * each, end = begin + each < rows ? begin + each : rows;
  Group<float, W> sum{};
  if (c < columns) {
    FP8_UNROLL_BY_4
    for (std::int64_t i = begin + warp; i < end; i += kRowWarps) source.row(i).template add<W>(c, sum);
  }
  *reinterpret_cast<Group<float, W>*>(&sums[warp][lane * W]) = sum;
  __syncthreads();
  for (int k = static_cast<int>(threadIdx.x); k < device::kWarp * W && first + k < columns; k += kThreads) {
    float total = 0;
    for (int w = 0; w < kRowWarps; ++w) total += sums[w][k];
    partial[blockIdx.y * columns + first + k] = total;
  }
}

/// out[c] += sum over blocks of partial[block][c], in f64. Each warp adds every Warps-th block; a lane has one column.
template <int Warps>
__global__ void column_totals_kernel(const float* partial, std::int64_t blocks, std::int64_t columns, float* out) {
  __shared__ double sums[Warps][device::kWarp];
  const int warp = static_cast<int>(threadIdx.x) / device::kWarp, lane = static_cast<int>(threadIdx.x) % device::kWarp;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * device::kWarp + lane;
  double sum = 0;
  if (c < columns) {
    FP8_UNROLL_BY_4
    for (std::int64_t b = warp; b < blocks; b += Warps) sum += static_cast<double>(partial[b * columns + c]);
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || c >= columns) return;
  for (int w = 1; w < Warps; ++w) sum += sums[w][lane];
  out[c] += static_cast<float>(sum);
}

/// Launches column_totals_kernel.
template <class Launcher>
void column_totals(const Launcher& launch, const char* name, const float* partial, std::int64_t blocks,
                   std::int64_t columns, float* out) {
  launch(name, dim3(device::blocks_for(columns, device::kWarp)), dim3(kTotalWarps * device::kWarp),
         column_totals_kernel<kTotalWarps>, partial, blocks, columns, out);
}

/// out f32 [columns] += the column sums of `source` over `rows`; partial f32 [column_blocks(rows, columns), columns].
/// `packed`: groups of kWide columns are aligned and whole.
template <class Launcher, class Source>
void column_sums(const Launcher& launch, const char* name, const Source& source, std::int64_t rows,
                 std::int64_t columns, bool packed, float* partial, float* out) {
  if (rows == 0 || columns == 0) return;
  const std::int64_t blocks = cuda::column_blocks(rows, columns), each = divide_up(rows, blocks);
  const int width = device::kWarp * (packed ? kWide : 1);
  const dim3 grid(device::blocks_for(columns, width), static_cast<unsigned>(blocks));
  launch(name, grid, dim3(kThreads), packed ? column_partials_kernel<kWide, Source> : column_partials_kernel<1, Source>,
         source, rows, columns, each, partial);
  column_totals(launch, name, partial, blocks, columns, out);
}

}  // namespace fp8::ops
