/// Casts of the tiles of a matrix to FP8 codes, and kernels that cast with known scales or move codes to another
/// layout.
#pragma once

#include <algorithm>

#include "fp8/dtype/dispatch.h"
#include "fp8/dtype/encode_pair.h"
#include "fp8/quant/cast_element.h"
#include "fp8/quant/quantize.h"
#include "fp8/quant/scale.h"
#include "fp8/quant/tile.cuh"

namespace fp8::quant {

using device::blocks_for;
using device::LargestBits;

/// Position of the scale of an element: one in all, one per line, or one per block of 2^k elements.
struct ScaleGrid {
  std::int64_t line_stride = 0, along_stride = 0;  ///< between scales; 0: the same scale
  int line_shift = 0, along_shift = 0;             ///< log2 of the elements of a block across and along lines
  /// Index of the scale of element i of a line.
  __device__ std::int64_t at(std::int64_t line, std::int64_t i) const {
    return (line >> line_shift) * line_stride + (i >> along_shift) * along_stride;
  }
  /// Between the scales of adjacent lines of a patch. Blocks of several lines are larger than a patch.
  __device__ std::int64_t line_step() const { return line_shift == 0 ? line_stride : 0; }
};

/// Codes that are adjacent along a line, which is a row or a column of the source; codes null: not wanted.
struct Target : CodeLines {
  const float* scale;
  ScaleGrid grid;
};

/// Counts of the elements that a thread has cast.
template <bool kCounted>
struct Tally {
  unsigned saturated = 0, underflowed = 0;
  /// v is `from` times its scale.
  template <class Grid>
  __device__ void add(float v, float from) {
    if constexpr (kCounted) {
      saturated += saturates<Grid>(v) ? 1u : 0u;
      underflowed += underflows<Grid>(v, from) ? 1u : 0u;
    }
  }
};

/// Codes of a piece; `scale_of(k)` is the scale of element k.
template <class Grid, class T, class ScaleOf, class TallyOf>
__device__ inline Eight encode_piece(const Piece<T>& piece, ScaleOf scale_of, TallyOf& tally) {
  std::uint32_t pairs[kPiece / 2];
  FP8_UNROLL
  for (int p = 0; p < kPiece / 2; ++p) {
    const float low = piece.at(2 * p), high = piece.at(2 * p + 1);
    const float scaled_low = low * scale_of(2 * p), scaled_high = high * scale_of(2 * p + 1);
    tally.template add<Grid>(scaled_low, low);
    tally.template add<Grid>(scaled_high, high);
    pairs[p] = dtype::encode_pair<Grid>(scaled_low, scaled_high);
  }
  return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
}

/// The scales of the first n columns of a patch, whose rows share them; 1 for the others.
struct ColumnScales {
  float at[kPiece];
  __device__ ColumnScales(const Target& to, const PatchPlace& place, std::int64_t n) {
    const float* const first = to.scale + to.grid.at(place.col(), place.row());
    const std::int64_t step = to.grid.line_step();
    at[0] = n > 0 ? *first : 1.0f;
    FP8_UNROLL
    for (int k = 1; k < kPiece; ++k) {
      at[k] = at[0];
      if (step != 0) at[k] = k < n ? first[k * step] : 1.0f;
    }
  }
};

/// A matrix with unit column stride, as the source of a cast. A matrix that is computed as it is cast has the same
/// members, of which load() and load_some() compute.
template <class T>
struct Source {
  using Element = T;
  const T* data;
  std::int64_t rows, cols, stride;

  /// Rows of the matrix, from `first` on.
  __device__ Source part(std::int64_t first, std::int64_t count) const {
    return {data + first * stride, count, cols, stride};
  }
  /// Whether all rows begin at multiples of 16 bytes.
  __device__ bool aligned() const { return device::packs(data, stride); }
  /// Loads a patch that is inside, with aligned rows.
  __device__ void load(const PatchPlace& place, Piece<T> (&pieces)[kPiece]) const {
    const T* from = data + place.row() * stride + place.col();
    FP8_UNROLL
    for (int i = 0; i < kPiece; ++i, from += stride) pieces[i].load(from);
  }
  /// The first n elements of a piece of row r from column c on; n may be 0 or negative.
  __device__ void load_some(std::int64_t r, std::int64_t c, std::int64_t n, Piece<T>& piece) const {
    piece.load_some(n > 0 ? data + r * stride + c : data, n);
  }
};

/// Results of a thread besides codes: counts, and the largest magnitude without NaN.
template <bool kCounted>
struct Findings {
  Tally<kCounted> tally;
  float largest = 0.0f;
  /// Adds the magnitudes of a piece.
  template <class T>
  __device__ void compare(const Piece<T>& piece) {
    FP8_UNROLL
    for (int k = 0; k < kPiece; ++k) largest = fmaxf(largest, fabsf(piece.at(k)));  // leaves out NaN
  }
};

/// Adds what the threads of a block have counted to `counts`, and the first block all elements. Every thread calls it.
template <bool kCounted>
__device__ inline void add_counts(const Tally<kCounted>& tally, const PatchPlace& place, std::int64_t elements,
                                  unsigned long long* counts) {
  if constexpr (kCounted) {
    const unsigned saturated = device::block_combine<kCastThreads>(tally.saturated, device::Add{});
    const unsigned underflowed = device::block_combine<kCastThreads>(tally.underflowed, device::Add{});
    if (threadIdx.x != 0) return;
    if (place.first_row == 0 && place.first_col == 0) atomicAdd(counts, static_cast<unsigned long long>(elements));
    atomicAdd(counts + 1, static_cast<unsigned long long>(saturated));
    atomicAdd(counts + 2, static_cast<unsigned long long>(underflowed));
  }
}

/// A patch of a tile that is whole, with aligned rows of the source and of the targets. `shared`: both layouts have the
/// same codes.
template <class Grid, class T, bool kCounted>
__device__ void cast_patch(const Piece<T> (&pieces)[kPiece], const PatchPlace& place, const Target& row,
                           const Target& column, bool shared, bool wants_amax, const TransposedTile& tile,
                           Findings<kCounted>& found) {
  if (wants_amax) {
    FP8_UNROLL
    for (int i = 0; i < kPiece; ++i) found.compare(pieces[i]);
  }
  Patch patch;
  if (row.codes != nullptr) {
    const float* const scales = row.scale + row.grid.at(place.row(), place.col());
    const std::int64_t step = row.grid.line_step();
    float scale = *scales;
    std::uint8_t* to = row.codes + place.row() * row.stride + place.col();
    FP8_UNROLL
    for (int i = 0; i < kPiece; ++i, to += row.stride) {
      if (i > 0 && step != 0) scale = scales[i * step];
      patch.line[i] = encode_piece<Grid>(
          pieces[i], [&](int) { return scale; }, found.tally);
      *reinterpret_cast<Eight*>(to) = patch.line[i];
    }
  }
  if (column.codes == nullptr) return;
  if (!shared) {
    const ColumnScales scales(column, place, kPiece);
    FP8_UNROLL
    for (int i = 0; i < kPiece; ++i)
      patch.line[i] = encode_piece<Grid>(
          pieces[i], [&](int k) { return scales.at[k]; }, found.tally);
  }
  tile.put(place, patch.transposed());
}

/// A patch that is partly outside of the matrix, or whose addresses are not aligned, row by row.
template <class Grid, bool kCounted, class From>
__device__ void cast_edge(const From& x, const PatchPlace& place, const Target& row, const Target& column, bool shared,
                          bool wants_amax, const TransposedTile& tile, Findings<kCounted>& found) {
  const std::int64_t c = place.col();
  const bool scaled = column.codes != nullptr && !shared && place.row() < x.rows;
  const ColumnScales scales(column, place, scaled ? x.cols - c : 0);
  FP8_NO_UNROLL
  for (int i = 0; i < kPiece; ++i) {
    const std::int64_t r = place.row() + i, inside = r < x.rows ? x.cols - c : 0;
    Piece<typename From::Element> piece;
    x.load_some(r, c, inside, piece);
    if (wants_amax) found.compare(piece);
    Eight codes{};
    if (row.codes != nullptr && inside > 0) {
      const float scale = row.scale[row.grid.at(r, c)];
      codes = first_codes(encode_piece<Grid>(
                              piece, [&](int) { return scale; }, found.tally),
                          inside);
    }
    if (row.codes != nullptr && r < x.rows) row.store_some(r, c, codes);
    if (column.codes == nullptr) continue;
    if (!shared)
      codes = first_codes(encode_piece<Grid>(
                              piece, [&](int k) { return scales.at[k]; }, found.tally),
                          inside);
    tile.put_row(place, i, codes);
  }
}

/// Whether the tile of a block is whole and all addresses of its patches are aligned.
template <class From>
__device__ inline bool aligned_tile(const From& x, const PatchPlace& place, const CodeLines& row) {
  return place.inside(x.rows, x.cols) && x.aligned() && (row.codes == nullptr || row.aligned(sizeof(Eight)));
}

/// Scales that earlier kernels have computed.
struct GivenScales {
  /// Nothing is left to compute.
  template <class From, class Pieces>
  __device__ void find(const From&, const PatchPlace&, bool, const Pieces&) const {}
};

/// Codes of a tile of x by rows, by columns, or both. `shared`: both are the same codes, and are counted once. `scales`
/// computes the scales of the targets, if they are those of blocks. `amax` (null: not wanted) becomes the larger of
/// itself and the bits of the largest magnitude without NaN.
template <class Grid, bool kCounted, class From, class Scales>
__device__ inline void cast_tile(const From& x, const PatchPlace& place, const Target& row, const Target& column,
                                 const Scales& scales, bool shared, unsigned* amax, unsigned long long* counts) {
  alignas(16) __shared__ Eight across[kTile * kGroups];
  const TransposedTile tile{across};
  Findings<kCounted> found;
  const bool whole = aligned_tile(x, place, row);
  Piece<typename From::Element> pieces[kPiece];
  if (whole) x.load(place, pieces);
  scales.find(x, place, whole, pieces);
  if (whole)
    cast_patch<Grid>(pieces, place, row, column, shared, amax != nullptr, tile, found);
  else
    cast_edge<Grid>(x, place, row, column, shared, amax != nullptr, tile, found);
  if (column.codes != nullptr) {
    __syncthreads();
    tile.store(place, column, x.cols);
  }
  if (amax != nullptr) {
    const unsigned largest = device::block_combine<kCastThreads>(magnitude_bits(found.largest), LargestBits{});
    if (threadIdx.x == 0) atomicMax(amax, largest);
  }
  const bool twice = row.codes != nullptr && column.codes != nullptr && !shared;
  add_counts(found.tally, place, x.rows * x.cols * (twice ? 2 : 1), counts);
}

/// Casts a tile with known scales.
template <class From, class Grid, bool kCounted>
__global__ void cast_kernel(From x, Target row, Target column, bool shared, unsigned* amax,
                            unsigned long long* counts) {
  cast_tile<Grid, kCounted>(x, PatchPlace(), row, column, GivenScales{}, shared, amax, counts);
}

/// Copies the codes of a tile to rows, to columns, or both.
template <class Code>
__device__ inline void repack_tile(const Source<Code>& codes, const PatchPlace& place, const CodeLines& row,
                                   const CodeLines& column) {
  alignas(16) __shared__ Eight across[kTile * kGroups];
  const TransposedTile tile{across};
  const std::int64_t c = place.col();
  if (place.inside(codes.rows, codes.cols) && rows_aligned(codes.data, codes.stride, sizeof(Eight)) &&
      (row.codes == nullptr || row.aligned(sizeof(Eight)))) {
    Patch patch;
    const Code* from = codes.data + place.row() * codes.stride + c;
    FP8_UNROLL
    for (int i = 0; i < kPiece; ++i, from += codes.stride) patch.line[i] = *reinterpret_cast<const Eight*>(from);
    if (row.codes != nullptr) {
      std::uint8_t* to = row.codes + place.row() * row.stride + c;
      FP8_UNROLL
      for (int i = 0; i < kPiece; ++i, to += row.stride) *reinterpret_cast<Eight*>(to) = patch.line[i];
    }
    if (column.codes != nullptr) tile.put(place, patch.transposed());
  } else {
    FP8_NO_UNROLL
    for (int i = 0; i < kPiece; ++i) {
      const std::int64_t r = place.row() + i, inside = r < codes.rows ? codes.cols - c : 0;
      const Eight some = load_some_codes(codes.data + (inside > 0 ? r * codes.stride + c : 0), inside);
      if (row.codes != nullptr && r < codes.rows) row.store_some(r, c, some);
      if (column.codes != nullptr) tile.put_row(place, i, some);
    }
  }
  if (column.codes == nullptr) return;
  __syncthreads();
  tile.store(place, column, codes.cols);
}

/// Copies a tile of codes.
template <class Code>
__global__ void repack_kernel(Source<Code> codes, CodeLines row, CodeLines column) {
  repack_tile(codes, PatchPlace(), row, column);
}

// --- launches ---

/// log2 of a power of two.
inline int log2_of(std::int64_t power) { return std::countr_zero(static_cast<std::uint64_t>(power)); }

/// One layout of codes; `codes` null: not wanted.
struct CodeLayout {
  std::uint8_t* codes = nullptr;
  std::int64_t stride = 0;
  dtype::DType format = dtype::DType::e4m3;
  const float* scale = nullptr;
  ScaleGrid grid{};
  /// Scales of blocks, which the cast computes, and their rule; `computed` null: `scale` is known.
  float *computed = nullptr, *inverse = nullptr;
  Granularity blocks = Granularity::none;
  bool power_of_2 = false;
};

/// Blocks that cover the matrix and the padding of the codes, which becomes zero.
inline dim3 cast_grid(std::int64_t m, std::int64_t n, const CodeLayout& by_row, const CodeLayout& by_column) {
  const std::int64_t columns = std::max(n, by_row.codes != nullptr ? by_row.stride : 0);
  const std::int64_t rows = std::max(m, by_column.codes != nullptr ? by_column.stride : 0);
  return dim3(blocks_for(columns, kTile), blocks_for(rows, kTile));
}

/// Copies codes to another layout.
template <class Launcher>
void launch_repack(const Launcher& launch, const View& codes, const CodeLayout& by_row, const CodeLayout& by_column) {
  if (codes.size() == 0) return;
  launch("codes", cast_grid(codes.shape[0], codes.shape[1], by_row, by_column), dim3(kCastThreads),
         repack_kernel<std::uint8_t>,
         Source<std::uint8_t>{codes.as<std::uint8_t>(), codes.shape[0], codes.shape[1], codes.stride[0]},
         CodeLines{by_row.codes, by_row.stride}, CodeLines{by_column.codes, by_column.stride});
}

}  // namespace fp8::quant
