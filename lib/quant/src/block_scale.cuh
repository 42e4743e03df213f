// Scales of the blocks of a matrix on a device.
#pragma once

#include "cast.cuh"

namespace fp8::quant {

inline constexpr int kLeastBlock = 32;
inline constexpr int kLeastShift = 5;
inline constexpr int kTileShift = 7;
inline constexpr int kTileBlocks = kTile / kLeastBlock;
static_assert(1 << kLeastShift == kLeastBlock && 1 << kTileShift == kTile && kLeastBlock % kPiece == 0,
              "a piece is a part of a block, and a block of a tile");

// Scales for the blocks of lines along the contracted dimension; scale null: not wanted.
struct BlockScales {
  float *scale = nullptr, *inverse = nullptr;
  ScaleGrid grid{};
  BlockRule rule{};

  // Magnitudes with larger bits do not count. Only mx propagates NaN.
  __device__ unsigned limit() const { return rule.mx ? 0xFFFFFFFFu : 0x7F800000u; }
  // Index, in shared memory, of the amax of element `i` of a line of the tile.
  __device__ int slot(int line, int i) const { return (i >> grid.along_shift) * kTile + (line >> grid.line_shift); }
  // Stores the scales of a tile that begins at (first_line, first_i) of `lines` lines of `length` elements.
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

// Combines kCount maxima of two threads `distance` lanes apart: each keeps half of them, the thread with the higher
// lane the upper half.
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

// Magnitudes of a patch: the largest of each of its rows and of each of its columns.
struct PatchMaxima {
  unsigned row[kPiece] = {}, column[kPiece] = {};

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
  // To the slots of the rows' blocks. Threads with adjacent lanes have adjacent patches of the same rows.
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
  // To the slots of the columns' blocks. The second half of a warp has the patches below those of the first.
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

// Scales of the blocks of a tile, of which every block is a part, by rows, by columns, or both.
template <class T>
__device__ inline void block_scale_tile(const Source<T>& x, const PatchPlace& place, const BlockScales& row,
                                        const BlockScales& column) {
  __shared__ unsigned of_row[kTile * kTileBlocks], of_column[kTile * kTileBlocks];
  for (int t = static_cast<int>(threadIdx.x); t < kTile * kTileBlocks; t += kCastThreads) of_row[t] = of_column[t] = 0;
  __syncthreads();
  PatchMaxima maxima;
  if (place.inside(x.rows, x.cols) && device::packs(x.data, x.stride)) {
    Piece<T> pieces[kPiece];
    load_patch(x, place, pieces);
    FP8_UNROLL
    for (int i = 0; i < kPiece; ++i) maxima.row[i] = maxima.add(pieces[i], row.limit(), column.limit());
    if (row.scale != nullptr) maxima.store_rows(row, place, of_row);
  } else {
    FP8_NO_UNROLL
    for (int i = 0; i < kPiece; ++i) {
      const std::int64_t r = place.row() + i, inside = r < x.rows ? x.cols - place.col() : 0;
      Piece<T> piece;
      piece.load_some(inside > 0 ? x.data + r * x.stride + place.col() : x.data, inside);
      const unsigned largest = maxima.add(piece, row.limit(), column.limit());
      if (row.scale != nullptr) atomicMax(of_row + row.slot(place.lane * kPiece + i, place.group * kPiece), largest);
    }
  }
  if (column.scale != nullptr) maxima.store_columns(column, place, of_column);
  __syncthreads();
  if (row.scale != nullptr) row.store(of_row, place.first_row, x.rows, place.first_col, x.cols);
  if (column.scale != nullptr) column.store(of_column, place.first_col, x.cols, place.first_row, x.rows);
}

template <class T>
__global__ void block_scale_kernel(Source<T> x, BlockScales row, BlockScales column) {
  block_scale_tile(x, PatchPlace(), row, column);
}

}  // namespace fp8::quant
