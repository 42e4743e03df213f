/// Scales of the blocks of a matrix on a device, alone or with the codes, and the launches of casts.
#pragma once

#include "fp8/quant/cast.cuh"

namespace fp8::quant {

inline constexpr int kLeastBlock = 32;
inline constexpr int kLeastShift = 5;
inline constexpr int kTileShift = 7;
inline constexpr int kTileBlocks = kTile / kLeastBlock;
static_assert(1 << kLeastShift == kLeastBlock && 1 << kTileShift == kTile && kLeastBlock % kPiece == 0,
              "a piece is a part of a block, and a block of a tile");

/// Scales for the blocks of lines along the contracted dimension; scale null: not wanted.
struct BlockScales {
  float *scale = nullptr, *inverse = nullptr;
  ScaleGrid grid{};
  BlockRule rule{};

  /// Magnitudes with larger bits do not count. Only mx propagates NaN.
  __device__ unsigned limit() const { return rule.mx ? 0xFFFFFFFFu : 0x7F800000u; }
  /// Index, in shared memory, of the amax of element `i` of a line of the tile.
  __device__ int slot(int line, int i) const { return (i >> grid.along_shift) * kTile + (line >> grid.line_shift); }
  /// Stores the scales of a tile that begins at (first_line, first_i) of `lines` lines of `length` elements.
  __device__ void store(const unsigned* amaxes, std::int64_t first_line, std::int64_t lines, std::int64_t first_i,
                        std::int64_t length) const {
    const int down_shift = kTileShift - grid.line_shift, along_blocks = kTile >> grid.along_shift;
    for (int t = static_cast<int>(threadIdx.x); t < along_blocks << down_shift; t += kCastThreads) {
      const int down = t & ((1 << down_shift) - 1), along = t >> down_shift;
      const int line = down << grid.line_shift, i = along << grid.along_shift;
      if (first_line + line >= lines || first_i + i >= length) continue;
      const ScaleFactors f = rule(from_magnitude(amaxes[slot(line, i)]));
      const std::int64_t at = grid.at(first_line + line, first_i + i);
      scale[at] = f.scale;
      inverse[at] = f.inverse;
    }
  }
};

/// Combines kCount maxima of two threads `distance` lanes apart: each keeps half of them, the thread with the higher
/// lane the upper half.
template <int kCount>
__device__ inline void halve_maxima(unsigned* maxima, int distance) {
  constexpr int kHalf = kCount / 2;
  const bool upper = (static_cast<int>(threadIdx.x) & distance) != 0;
  FP8_UNROLL
  for (int k = 0; k < kHalf; ++k) {
    const unsigned kept = upper ? maxima[kHalf + k] : maxima[k], given = upper ? maxima[k] : maxima[kHalf + k];
    maxima[k] = LargestBits{}(kept, __shfl_xor_sync(device::kAllLanes, given, distance));
  }
}

/// Magnitudes of a patch: the largest of each of its rows and of each of its columns.
struct PatchMaxima {
  unsigned row[kPiece] = {}, column[kPiece] = {};

  /// Adds a piece of a row; returns its largest magnitude. Larger bits than a limit do not count.
  template <class T>
  __device__ unsigned add(const Piece<T>& piece, unsigned row_limit, unsigned column_limit) {
    unsigned largest = 0;
    FP8_UNROLL
    for (int k = 0; k < kPiece; ++k) {
      const unsigned bits = magnitude_bits(piece.at(k));
      largest = LargestBits{}(largest, bits > row_limit ? 0u : bits);
      column[k] = LargestBits{}(column[k], bits > column_limit ? 0u : bits);
    }
    return largest;
  }
  /// To the slots of the rows' blocks. Threads with adjacent lanes have adjacent patches of the same rows.
  __device__ void store_rows(const BlockScales& to, const PatchPlace& place, unsigned* amaxes) {
    halve_maxima<8>(row, 1);
    halve_maxima<4>(row, 2);
    const int bits = place.group, line = place.lane * kPiece + (bits & 1) * 4 + (bits & 2);
    const int i = place.group * kPiece;
    if (to.grid.along_shift == kLeastShift) {
      atomicMax(amaxes + to.slot(line, i), row[0]);
      atomicMax(amaxes + to.slot(line + 1, i), row[1]);
      return;
    }
    halve_maxima<2>(row, 4);
    atomicMax(amaxes + to.slot(line + ((bits & 4) != 0 ? 1 : 0), i), row[0]);
  }
  /// To the slots of the columns' blocks. The second half of a warp has the patches below those of the first.
  __device__ void store_columns(const BlockScales& to, const PatchPlace& place, unsigned* amaxes) {
    halve_maxima<8>(column, kGroups);
    const int line = place.group * kPiece + (place.lane % 2) * 4, i = place.lane * kPiece;
    if (to.grid.line_shift != 0) {  // all lines of the tile are in one block
      for (int k = 1; k < 4; ++k) column[0] = LargestBits{}(column[0], column[k]);
      atomicMax(amaxes + to.slot(line, i), column[0]);
      return;
    }
    FP8_UNROLL
    for (int k = 0; k < 4; ++k) atomicMax(amaxes + to.slot(line + k, i), column[k]);
  }
};

/// Scales of the blocks of a tile, of which every block is a part, by rows, by columns, or both. `pieces` has the patch
/// of this thread if `whole`.
template <class From>
__device__ inline void block_scale_tile(const From& x, const PatchPlace& place, bool whole,
                                        const Piece<typename From::Element> (&pieces)[kPiece], const BlockScales& row,
                                        const BlockScales& column) {
  __shared__ unsigned of_row[kTile * kTileBlocks], of_column[kTile * kTileBlocks];
  for (int t = static_cast<int>(threadIdx.x); t < kTile * kTileBlocks; t += kCastThreads) of_row[t] = of_column[t] = 0;
  __syncthreads();
  PatchMaxima maxima;
  if (whole) {
    FP8_UNROLL
    for (int i = 0; i < kPiece; ++i) maxima.row[i] = maxima.add(pieces[i], row.limit(), column.limit());
    if (row.scale != nullptr) maxima.store_rows(row, place, of_row);
  } else {
    FP8_NO_UNROLL
    for (int i = 0; i < kPiece; ++i) {
      const std::int64_t r = place.row() + i, inside = r < x.rows ? x.cols - place.col() : 0;
      Piece<typename From::Element> piece;
      x.load_some(r, place.col(), inside, piece);
      const unsigned largest = maxima.add(piece, row.limit(), column.limit());
      if (row.scale != nullptr) atomicMax(of_row + row.slot(place.lane * kPiece + i, place.group * kPiece), largest);
    }
  }
  if (column.scale != nullptr) maxima.store_columns(column, place, of_column);
  __syncthreads();
  if (row.scale != nullptr) row.store(of_row, place.first_row, x.rows, place.first_col, x.cols);
  if (column.scale != nullptr) column.store(of_column, place.first_col, x.cols, place.first_row, x.rows);
}

/// Scales that the block of threads which casts a tile computes first.
struct TileScales {
  BlockScales row, column;
  /// Computes and stores them.
  template <class From, class Pieces>
  __device__ void find(const From& x, const PatchPlace& place, bool whole, const Pieces& pieces) const {
    block_scale_tile(x, place, whole, pieces, row, column);
    __syncthreads();  // threads read the scales that others have stored
  }
};

/// Casts a tile in blocks, whose scales it computes.
template <class From, class Grid, bool kCounted>
__global__ void block_cast_kernel(From x, Target row, Target column, TileScales scales, bool shared, unsigned* amax,
                                  unsigned long long* counts) {
  cast_tile<Grid, kCounted>(x, PatchPlace(), row, column, scales, shared, amax, counts);
}

// --- launches ---

/// Scales of lines along the contracted dimension.
inline ScaleGrid scale_grid(const Quantized& q) {
  if (q.granularity == Granularity::tensor) return {};
  const BlockExtent block = block_extent(q.granularity);
  if (block.along == 0) return {.line_stride = 1};
  const bool last = q.contract == ContractionAxis::last;
  return {.line_stride = q.scale.stride[last ? 0 : 1],
          .along_stride = q.scale.stride[last ? 1 : 0],
          .line_shift = log2_of(block.across),
          .along_shift = log2_of(block.along)};
}

/// The layout of a result with memory; scales of blocks, which the cast computes, are powers of two on request.
inline CodeLayout layout_of(const Quantized& q, bool power_of_2) {
  if (q.codes.empty()) return {};
  const bool blocks = block_extent(q.granularity).along > 0;
  return {.codes = q.codes.as<std::uint8_t>(),
          .stride = q.codes.stride[q.contract == ContractionAxis::last ? 0 : 1],
          .format = q.format,
          .scale = q.scale.as<float>(),
          .grid = scale_grid(q),
          .computed = blocks ? q.scale.as<float>() : nullptr,
          .inverse = blocks ? q.inverse_scale.as<float>() : nullptr,
          .blocks = q.granularity,
          .power_of_2 = power_of_2};
}

/// The scales of a layout that the cast of elements of type T computes.
template <class T>
BlockScales block_scales(const CodeLayout& l) {
  if (l.computed == nullptr) return {};
  return {l.computed, l.inverse, l.grid, block_rule<T>(l.blocks, dtype::max_of(l.format), l.power_of_2)};
}

/// The codes that a kernel writes.
inline Target target_of(const CodeLayout& l) { return {{l.codes, l.stride}, l.scale, l.grid}; }

/// Casts a source of tiles; `amax` f32 [1] and `counts` as in cast_tile(). Casts to two formats take two launches.
template <class Launcher, class From>
void launch_cast(const Launcher& launch, const char* name, const From& x, const CodeLayout& by_row,
                 const CodeLayout& by_column, bool shared, const View& amax, CastCounts* counts) {
  using T = typename From::Element;
  if (x.rows == 0 || x.cols == 0) return;
  if (by_row.codes != nullptr && by_column.codes != nullptr && by_row.format != by_column.format) {
    launch_cast(launch, name, x, by_row, {}, false, amax, counts);
    launch_cast(launch, name, x, {}, by_column, false, {}, counts);
    return;
  }
  const dim3 grid = cast_grid(x.rows, x.cols, by_row, by_column), threads(kCastThreads);
  const Target row = target_of(by_row), column = target_of(by_column);
  auto* const largest = static_cast<unsigned*>(amax.data);
  auto* const sums = reinterpret_cast<unsigned long long*>(counts);
  dtype::with_fp8_grid(by_row.codes != nullptr ? by_row.format : by_column.format, [&]<class Grid>() {
    if (by_row.computed == nullptr && by_column.computed == nullptr)
      launch(name, grid, threads, sums != nullptr ? cast_kernel<From, Grid, true> : cast_kernel<From, Grid, false>, x,
             row, column, shared, largest, sums);
    else
      launch(name, grid, threads,
             sums != nullptr ? block_cast_kernel<From, Grid, true> : block_cast_kernel<From, Grid, false>, x, row,
             column, TileScales{block_scales<T>(by_row), block_scales<T>(by_column)}, shared, largest, sums);
  });
}

}  // namespace fp8::quant
