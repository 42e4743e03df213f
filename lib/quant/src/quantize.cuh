// Amaxes, scales and casts on a device: kernels, their launches, and the operations of cuda.h as templates over the
// launcher. Magnitudes are compared as integers and counts are integers: atomic operations on them give the same bits
// in any order.
#pragma once

#include <algorithm>

#include "cast_block.h"
#include "cast_element.h"
#include "fp8/base/round.h"
#include "fp8/device/kernel.h"
#include "fp8/dtype/dispatch.h"
#include "fp8/quant/quantize.h"
#include "fp8/quant/scale.h"

namespace fp8::quant {

using device::blocks_for;
using device::LargestBits;

inline constexpr int kCastThreads = 256;
inline constexpr int kPiece = 8;  // adjacent elements of a thread

// kPiece elements of a row from column c on, as float or byte; 0 past the end of the row.
template <class T>
struct Piece {
  using Value = float;
  Value at[kPiece];
  __device__ void load(const T* row, std::int64_t c, std::int64_t cols, bool packed) {
    using device::Pack;
    if (packed && c + kPiece <= cols) {
      constexpr int kPacks = kPiece / Pack<T>::kSize;
      for (int p = 0; p < kPacks; ++p) {
        const auto pack = *reinterpret_cast<const Pack<T>*>(row + c + p * Pack<T>::kSize);
        for (int i = 0; i < Pack<T>::kSize; ++i) at[p * Pack<T>::kSize + i] = dtype::to_float(pack.at[i]);
      }
    } else {
      for (int i = 0; i < kPiece; ++i) at[i] = c + i < cols ? dtype::to_float(row[c + i]) : 0.0f;
    }
  }
};
template <>
struct Piece<std::uint8_t> {
  using Value = std::uint8_t;
  Value at[kPiece];
  __device__ void load(const std::uint8_t* row, std::int64_t c, std::int64_t cols, bool) {
    for (int i = 0; i < kPiece; ++i) at[i] = c + i < cols ? row[c + i] : std::uint8_t{0};
  }
};

// --- amaxes ---

inline constexpr int kAmaxRows = 128, kAmaxColumns = device::kWarp * kPiece;  // tile of a block

// Bits of |v|; with `skip_nan`, 0 for NaN.
__device__ inline unsigned amax_bits(float v, bool skip_nan) { return skip_nan && v != v ? 0u : magnitude_bits(v); }

// Maximum magnitude bits of all of x, of each row and of each column; null: not wanted. Results must be zeroed before.
template <class T>
__global__ void amax_kernel(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t stride, bool skip_nan,
                            unsigned* all, unsigned* of_row, unsigned* of_column) {
  __shared__ unsigned column[kCastThreads / device::kWarp][kAmaxColumns];
  const int warp = static_cast<int>(threadIdx.x) / device::kWarp, lane = static_cast<int>(threadIdx.x) % device::kWarp;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kAmaxColumns + lane * kPiece;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * kAmaxRows;
  const bool packed = device::packs(x, stride);
  unsigned of_lane[kPiece] = {};
  for (int i = warp; i < kAmaxRows; i += kCastThreads / device::kWarp) {
    const std::int64_t r = first + i;
    if (r >= rows) break;  // the same for the whole warp
    Piece<T> piece;
    piece.load(x + r * stride, c, cols, packed);
    unsigned largest = 0;
    for (int k = 0; k < kPiece; ++k) {
      const unsigned bits = amax_bits(piece.at[k], skip_nan);
      of_lane[k] = LargestBits{}(of_lane[k], bits);
      largest = LargestBits{}(largest, bits);
    }
    if (of_row == nullptr) continue;
    largest = device::warp_combine(largest, LargestBits{});
    if (lane == 0) atomicMax(of_row + r, largest);
  }
  if (all != nullptr) {
    unsigned largest = 0;
    for (int k = 0; k < kPiece; ++k) largest = LargestBits{}(largest, of_lane[k]);
    largest = device::block_combine<kCastThreads>(largest, LargestBits{});
    if (threadIdx.x == 0) atomicMax(all, largest);
  }
  if (of_column == nullptr) return;
  for (int k = 0; k < kPiece; ++k) column[warp][lane * kPiece + k] = of_lane[k];
  __syncthreads();
  const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * kAmaxColumns + threadIdx.x;
  if (mine >= cols) return;
  unsigned largest = 0;
  for (int w = 0; w < kCastThreads / device::kWarp; ++w) largest = LargestBits{}(largest, column[w][threadIdx.x]);
  atomicMax(of_column + mine, largest);
}
static_assert(kAmaxColumns == kCastThreads, "a thread finishes one column");

template <class T>
__global__ void fill_kernel(T* to, std::int64_t n, T value) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) to[i] = value;
}

// amax may be scale.
template <class F>
__global__ void scale_kernel(const F* amax, std::int64_t n, F max, ScaleRule rule, bool power_of_2, F* scale,
                             F* inverse_scale) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const F s = scale_by_rule(rule, amax[i], max, power_of_2);
  scale[i] = s;
  inverse_scale[i] = 1.0f / s;
}

// --- casts ---

// Position of the scale of an element: one in all, one per line, or one per block of 2^k elements.
struct ScaleGrid {
  std::int64_t line_stride = 0, along_stride = 0;  // between scales; 0: the same scale
  int line_shift = 0, along_shift = 0;             // log2 of the elements of a block across and along lines
  __device__ std::int64_t at(std::int64_t line, std::int64_t i) const {
    return (line >> line_shift) * line_stride + (i >> along_shift) * along_stride;
  }
};

// Casts to codes that are adjacent along a line, which is a row or a column of the source.
template <class Grid>
struct Target {
  using Format = Grid;
  std::uint8_t* codes;  // null: not wanted
  std::int64_t stride;  // bytes from one line to the next; bytes past the end of a line become zero
  const float* scale;
  ScaleGrid grid;
  __device__ std::uint8_t code(float v, std::int64_t line, std::int64_t i, unsigned& saturated,
                               unsigned& underflowed) const {
    const float scaled = v * scale[grid.at(line, i)];
    saturated += saturates<Grid>(scaled) ? 1u : 0u;
    underflowed += underflows<Grid>(scaled, v) ? 1u : 0u;
    return dtype::encode<Grid>(scaled);
  }
  __device__ std::uint8_t code(std::uint8_t v, std::int64_t, std::int64_t, unsigned&, unsigned&) const { return v; }
};

inline constexpr int kTile = 128;              // rows and columns of a block
inline constexpr int kTileStride = kTile + 4;  // bytes of a column in shared memory; avoids bank conflicts

// --- scales of blocks ---

inline constexpr int kLeastBlock = 32;
inline constexpr int kTileBlocks = kTile / kLeastBlock;

// Scales for the blocks of lines along the contracted dimension; scale null: not wanted.
struct BlockScales {
  float *scale = nullptr, *inverse = nullptr;
  ScaleGrid grid{};
  BlockRule rule{};
  __device__ unsigned magnitude(float v) const {
    const unsigned bits = magnitude_bits(v);
    return !rule.mx && bits > 0x7F800000u ? 0u : bits;  // only mx propagates NaN
  }
  // Index, in shared memory, of the amax of element `i` of a line of the tile.
  __device__ int slot(int line, int i) const {
    return (line >> grid.line_shift) * kTileBlocks + (i >> grid.along_shift);
  }
  // Stores the scales of a tile that begins at (first_line, first_i) of `lines` lines of `length` elements.
  __device__ void store(const unsigned* amaxes, std::int64_t first_line, std::int64_t lines, std::int64_t first_i,
                        std::int64_t length) const {
    const int down = kTile >> grid.line_shift, across = kTile >> grid.along_shift;
    for (int t = static_cast<int>(threadIdx.x); t < down * across; t += kCastThreads) {
      const int line = t / across << grid.line_shift, i = t % across << grid.along_shift;
      if (first_line + line >= lines || first_i + i >= length) continue;
      const ScaleFactors f = rule(from_magnitude(amaxes[slot(line, i)]));
      const std::int64_t at = grid.at(first_line + line, first_i + i);
      scale[at] = f.scale;
      inverse[at] = f.inverse;
    }
  }
};

// Scales of the blocks of a tile, of which every block is a part, by rows, by columns, or both.
template <class T>
__global__ void block_scale_kernel(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t stride,
                                   BlockScales row, BlockScales column) {
  __shared__ unsigned of_row[kTile * kTileBlocks], of_column[kTile * kTileBlocks];
  for (int t = static_cast<int>(threadIdx.x); t < kTile * kTileBlocks; t += kCastThreads) of_row[t] = of_column[t] = 0;
  __syncthreads();
  constexpr int kGroups = kTile / kPiece, kStep = kCastThreads / kGroups;
  const int group = static_cast<int>(threadIdx.x) % kGroups, lane = static_cast<int>(threadIdx.x) / kGroups;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kTile;
  const std::int64_t first_col = static_cast<std::int64_t>(blockIdx.x) * kTile, c = first_col + group * kPiece;
  const bool packed = device::packs(x, stride);
  unsigned of_lane[kPiece] = {};
  for (int i = lane; i < kTile; i += kStep) {
    const std::int64_t r = first_row + i;
    Piece<T> piece;
    piece.load(x + (r < rows ? r * stride : 0), c, r < rows ? cols : 0, packed);
    unsigned largest = 0;
    for (int k = 0; k < kPiece; ++k) {
      largest = LargestBits{}(largest, row.magnitude(piece.at[k]));
      of_lane[k] = LargestBits{}(of_lane[k], column.magnitude(piece.at[k]));
    }
    if (row.scale != nullptr) atomicMax(of_row + row.slot(i, group * kPiece), largest);
    if (column.scale == nullptr || i >> column.grid.along_shift == (i + kStep) >> column.grid.along_shift) continue;
    for (int k = 0; k < kPiece; ++k) {  // the last row of this thread in the block
      atomicMax(of_column + column.slot(group * kPiece + k, i), of_lane[k]);
      of_lane[k] = 0;
    }
  }
  __syncthreads();
  if (row.scale != nullptr) row.store(of_row, first_row, rows, first_col, cols);
  if (column.scale != nullptr) column.store(of_column, first_col, cols, first_row, rows);
}
static_assert(kLeastBlock % kPiece == 0 && kTile % kLeastBlock == 0, "a piece is a part of a block");

// Stores kPiece bytes of a line from `at` on, as one 8-byte store if that is aligned and within the line.
__device__ inline void store_piece(std::uint8_t* line, std::int64_t at, std::int64_t stride,
                                   const std::uint8_t* codes) {
  struct alignas(8) Eight {
    std::uint8_t at[8];
  };
  if (reinterpret_cast<std::uintptr_t>(line + at) % 8 == 0 && at + kPiece <= stride) {
    Eight eight;
    for (int i = 0; i < kPiece; ++i) eight.at[i] = codes[i];
    *reinterpret_cast<Eight*>(line + at) = eight;
  } else {
    for (int i = 0; i < kPiece; ++i) {
      if (at + i < stride) line[at + i] = codes[i];
    }
  }
}

// Codes of a tile of x by rows, by columns, or both. `counted_once`: both are the same codes and are counted once.
// `amax` (null: not wanted) becomes the larger of itself and the bits of the largest magnitude without NaN.
template <class T, class Row, class Column>
__global__ void cast_kernel(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t stride, Row row,
                            Column column, bool counted_once, unsigned* amax, unsigned long long* counts) {
  alignas(8) __shared__ std::uint8_t across[kTile * kTileStride];
  constexpr int kGroups = kTile / kPiece, kStep = kCastThreads / kGroups;
  const int group = static_cast<int>(threadIdx.x) % kGroups, lane = static_cast<int>(threadIdx.x) / kGroups;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kTile;
  const std::int64_t first_col = static_cast<std::int64_t>(blockIdx.x) * kTile, c = first_col + group * kPiece;
  const bool packed = device::packs(x, stride);
  unsigned saturated = 0, underflowed = 0, ignored = 0, largest = 0;
  for (int i = lane; i < kTile; i += kStep) {
    const std::int64_t r = first_row + i;
    Piece<T> piece;
    piece.load(x + (r < rows ? r * stride : 0), c, r < rows ? cols : 0, packed);
    if (amax != nullptr) {
      for (int k = 0; k < kPiece; ++k)
        largest = LargestBits{}(largest, amax_bits(static_cast<float>(piece.at[k]), true));
    }
    std::uint8_t codes[kPiece];
    if (row.codes != nullptr && r < rows) {
      for (int k = 0; k < kPiece; ++k)
        codes[k] = c + k < cols ? row.code(piece.at[k], r, c + k, saturated, underflowed) : std::uint8_t{0};
      store_piece(row.codes + r * row.stride, c, row.stride, codes);
    }
    if (column.codes == nullptr) continue;
    for (int k = 0; k < kPiece; ++k) {
      const bool inside = r < rows && c + k < cols;
      const std::uint8_t code = !inside        ? std::uint8_t{0}
                                : counted_once ? column.code(piece.at[k], c + k, r, ignored, ignored)
                                               : column.code(piece.at[k], c + k, r, saturated, underflowed);
      across[(group * kPiece + k) * kTileStride + i] = code;
    }
  }
  if (column.codes != nullptr) {
    __syncthreads();
    for (int k = lane; k < kTile; k += kStep) {
      const std::int64_t line = first_col + k;
      if (line >= cols) break;
      std::uint8_t codes[kPiece];
      for (int j = 0; j < kPiece; ++j) codes[j] = across[k * kTileStride + group * kPiece + j];
      store_piece(column.codes + line * column.stride, first_row + group * kPiece, column.stride, codes);
    }
  }
  if (amax != nullptr) {
    largest = device::block_combine<kCastThreads>(largest, LargestBits{});
    if (threadIdx.x == 0) atomicMax(amax, largest);
  }
  if (counts == nullptr) return;
  saturated = device::block_combine<kCastThreads>(saturated, device::Add{});
  underflowed = device::block_combine<kCastThreads>(underflowed, device::Add{});
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0 && blockIdx.y == 0) {
    const bool twice = row.codes != nullptr && column.codes != nullptr && !counted_once;
    atomicAdd(counts, static_cast<unsigned long long>(rows * cols * (twice ? 2 : 1)));
  }
  atomicAdd(counts + 1, static_cast<unsigned long long>(saturated));
  atomicAdd(counts + 2, static_cast<unsigned long long>(underflowed));
}

// Values of codes, element by element, padding included.
template <class Grid, class T>
__global__ void upcast_kernel(const std::uint8_t* codes, std::int64_t n, T* out) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float v = std::is_same_v<Grid, dtype::E4m3Grid> ? dtype::from_e4m3(codes[i]) : dtype::from_e5m2(codes[i]);
  out[i] = dtype::from_float<T>(v);
}

// Values of codes times the inverse scales of their blocks, for `n` bytes in lines of `stride`; 0 in the padding.
template <class Grid, class T>
__global__ void fold_kernel(const std::uint8_t* codes, std::int64_t n, std::int64_t stride, std::int64_t length,
                            const float* inverse, ScaleGrid grid, T* out) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const std::int64_t line = i / stride, at = i % stride;
  if (at >= length) {
    out[i] = dtype::from_float<T>(0.0f);
    return;
  }
  const float v = std::is_same_v<Grid, dtype::E4m3Grid> ? dtype::from_e4m3(codes[i]) : dtype::from_e5m2(codes[i]);
  out[i] = dtype::from_float<T>(v * inverse[grid.at(line, at)]);
}

// --- launches ---

// Amaxes as f32 views; empty: not wanted.
struct Amaxes {
  View all, of_row, of_column;
};

// With `keep`, a result becomes the larger of its value and the amax.
template <class Launcher>
void launch_amax(const Launcher& launch, const View& x, const Amaxes& out, bool skip_nan, bool keep = false) {
  if (out.all.empty() && out.of_row.empty() && out.of_column.empty()) return;
  const auto begin = [&](const View& v) {
    if (v.empty()) return static_cast<unsigned*>(nullptr);
    auto* const bits = static_cast<unsigned*>(v.data);
    if (!keep)
      launch("amax: begin", dim3(blocks_for(v.size(), kCastThreads)), dim3(kCastThreads), fill_kernel<unsigned>, bits,
             v.size(), 0u);
    return bits;
  };
  unsigned *const all = begin(out.all), *const of_row = begin(out.of_row), *const of_column = begin(out.of_column);
  dtype::with_float_type(x.dtype, "amax", [&]<class T>() {
    launch("amax", dim3(blocks_for(x.shape[1], kAmaxColumns), blocks_for(x.shape[0], kAmaxRows)), dim3(kCastThreads),
           amax_kernel<T>, x.as<T>(), x.shape[0], x.shape[1], x.stride[0], skip_nan, all, of_row, of_column);
  });
}

template <class Launcher>
void launch_scales(const Launcher& launch, const View& amax, const ScaleOptions& options, const View& scales,
                   const View& inverse_scales) {
  launch("scale", dim3(blocks_for(scales.size(), kCastThreads)), dim3(kCastThreads), scale_kernel<float>,
         amax.as<float>(), scales.size(), dtype::max_of(options.format), options.rule, options.power_of_2,
         scales.as<float>(), inverse_scales.as<float>());
}

// One layout of codes; `codes` null: not wanted.
struct CodeLayout {
  std::uint8_t* codes = nullptr;
  std::int64_t stride = 0;
  dtype::DType format = dtype::DType::e4m3;
  const float* scale = nullptr;
  ScaleGrid grid{};
};

// Blocks that cover the matrix and the padding of the codes, which becomes zero.
inline dim3 cast_grid(const View& x, const CodeLayout& by_row, const CodeLayout& by_column) {
  const std::int64_t columns = std::max(x.shape[1], by_row.codes != nullptr ? by_row.stride : 0);
  const std::int64_t rows = std::max(x.shape[0], by_column.codes != nullptr ? by_column.stride : 0);
  return dim3(blocks_for(columns, kTile), blocks_for(rows, kTile));
}

template <class Launcher>
void launch_cast(const Launcher& launch, const View& x, const CodeLayout& by_row, const CodeLayout& by_column,
                 bool counted_once, const View& amax, CastCounts* counts) {
  if (x.size() == 0) return;
  dtype::with_float_type(x.dtype, "cast", [&]<class T>() {
    dtype::with_fp8_grid(by_row.format, [&]<class R>() {
      dtype::with_fp8_grid(by_column.format, [&]<class C>() {
        launch("cast", cast_grid(x, by_row, by_column), dim3(kCastThreads), cast_kernel<T, Target<R>, Target<C>>,
               x.as<T>(), x.shape[0], x.shape[1], x.stride[0],
               Target<R>{by_row.codes, by_row.stride, by_row.scale, by_row.grid},
               Target<C>{by_column.codes, by_column.stride, by_column.scale, by_column.grid}, counted_once,
               static_cast<unsigned*>(amax.data), reinterpret_cast<unsigned long long*>(counts));
      });
    });
  });
}

// Copies codes to another layout.
template <class Launcher>
void launch_repack(const Launcher& launch, const View& codes, const CodeLayout& by_row, const CodeLayout& by_column) {
  if (codes.size() == 0) return;
  using Any = Target<dtype::E4m3Grid>;
  launch("codes", cast_grid(codes, by_row, by_column), dim3(kCastThreads), cast_kernel<std::uint8_t, Any, Any>,
         codes.as<std::uint8_t>(), codes.shape[0], codes.shape[1], codes.stride[0],
         Any{by_row.codes, by_row.stride, nullptr, {}}, Any{by_column.codes, by_column.stride, nullptr, {}}, true,
         static_cast<unsigned*>(nullptr), static_cast<unsigned long long*>(nullptr));
}

// --- operations ---

inline constexpr std::string_view kCategory = "fp8 codes";

// Codes [rows, cols] with unit stride along the contracted dimension and a multiple of 16 along the other.
inline View allocate_codes(const Context& ctx, std::int64_t rows, std::int64_t cols, ContractionAxis contract) {
  if (contract == ContractionAxis::last)
    return tensor::allocate(ctx, dtype::DType::u8, {rows, round_up(cols, 16)}, kCategory).columns(0, cols);
  return tensor::allocate(ctx, dtype::DType::u8, {cols, round_up(rows, 16)}, kCategory).columns(0, rows).transposed();
}

inline bool has_blocks(const Quantized& q) { return block_extent(q.granularity).along > 0; }

// An empty result for a cast with Granularity::none.
inline Quantized allocate_quantized(const Context& ctx, const View& x, const Cast& cast, ContractionAxis contract,
                                    const KnownScale& known) {
  if (!cast.fp8()) return {};
  const std::int64_t count =
      cast.granularity == Granularity::tensor ? 1 : x.shape[contract == ContractionAxis::last ? 0 : 1];
  const auto scales = [&] {
    return block_extent(cast.granularity).along > 0
               ? allocate_block_scales(ctx, x.shape[0], x.shape[1], cast.granularity, contract)
               : tensor::allocate(ctx, dtype::DType::f32, {count}, kCategory);
  };
  return {.codes = allocate_codes(ctx, x.shape[0], x.shape[1], contract),
          .format = cast.format,
          .granularity = cast.granularity,
          .contract = contract,
          .scale = known.scale.empty() ? scales() : known.scale,
          .inverse_scale = known.scale.empty() ? scales() : known.inverse_scale};
}

inline int log2_of(std::int64_t power) { return std::countr_zero(static_cast<std::uint64_t>(power)); }

// Scales of lines along the contracted dimension.
inline ScaleGrid scale_grid(const Quantized& q) {
  if (q.granularity == Granularity::tensor) return {};
  if (!has_blocks(q)) return {.line_stride = 1};
  const BlockExtent block = block_extent(q.granularity);
  const bool last = q.contract == ContractionAxis::last;
  return {.line_stride = q.scale.stride[last ? 0 : 1],
          .along_stride = q.scale.stride[last ? 1 : 0],
          .line_shift = log2_of(block.across),
          .along_shift = log2_of(block.along)};
}

inline CodeLayout layout_of(const Quantized& q) {
  if (q.codes.empty()) return {};
  return {.codes = q.codes.as<std::uint8_t>(),
          .stride = q.codes.stride[q.contract == ContractionAxis::last ? 0 : 1],
          .format = q.format,
          .scale = q.scale.as<float>(),
          .grid = scale_grid(q)};
}

// The result among `amaxes` for a granularity and contracted dimension.
inline View& amax_for(Amaxes& amaxes, Granularity granularity, ContractionAxis contract) {
  if (granularity == Granularity::tensor) return amaxes.all;
  return contract == ContractionAxis::last ? amaxes.of_row : amaxes.of_column;
}

// Scales of the casts with blocks.
template <class Launcher>
void launch_block_scales(const Launcher& launch, const View& x, const QuantizedPair& pair, bool power_of_2) {
  dtype::with_float_type(x.dtype, "scale", [&]<class T>() {
    const auto scales = [&](const Quantized& q) {
      if (q.codes.empty() || !has_blocks(q)) return BlockScales{};
      return BlockScales{.scale = q.scale.as<float>(),
                         .inverse = q.inverse_scale.as<float>(),
                         .grid = scale_grid(q),
                         .rule = block_rule<T>(q.granularity, dtype::max_of(q.format), power_of_2)};
    };
    const BlockScales row = scales(pair.last), column = scales(pair.first);
    if (x.size() == 0 || (row.scale == nullptr && column.scale == nullptr)) return;
    launch("block scales", dim3(blocks_for(x.shape[1], kTile), blocks_for(x.shape[0], kTile)), dim3(kCastThreads),
           block_scale_kernel<T>, x.as<T>(), x.shape[0], x.shape[1], x.stride[0], row, column);
  });
}

template <class Launcher>
void amax_cuda(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract, const View& out,
               bool skip_nan) {
  if (ctx.dry) return;
  Amaxes amaxes;
  amax_for(amaxes, granularity, contract) = out;
  launch_amax(Launcher(ctx), x, amaxes, skip_nan);
}

// Amaxes and scales of the casts without blocks, into the memory of `pair`.
template <class Launcher>
void scales_into(const Launcher& launch, const View& x, const QuantizedPair& pair, const CastOptions& options) {
  const auto wanted = [](const Quantized& q) { return !q.codes.empty() && !has_blocks(q); };
  if (!wanted(pair.last) && !wanted(pair.first)) return;
  // Amaxes are written to the memory of scales; that of the whole matrix, if both need it, to the scale of `first`.
  Amaxes amaxes;
  for (const Quantized* q : {&pair.last, &pair.first})
    if (wanted(*q)) amax_for(amaxes, q->granularity, q->contract) = q->scale;
  const View all = options.amax.empty() ? amaxes.all : options.amax;
  if (!options.amax.empty()) amaxes.all = {};
  launch_amax(launch, x, amaxes, skips_nan(options.rule));
  for (const Quantized* q : {&pair.last, &pair.first}) {
    if (!wanted(*q)) continue;
    const View& amax = q->granularity == Granularity::tensor ? all : q->scale;
    launch_scales(launch, amax, {q->format, options.rule, options.power_of_2}, q->scale, q->inverse_scale);
  }
}

// Scales, if they are not known, and codes into the memory of `pair`.
template <class Launcher>
void quantize_into(const Launcher& launch, const View& x, const QuantizedPair& pair, bool shared,
                   const CastOptions& options) {
  if (options.known.scale.empty()) scales_into(launch, x, pair, options);
  launch_block_scales(launch, x, pair, options.power_of_2);
  launch_cast(launch, x, layout_of(pair.last), layout_of(pair.first), shared, options.known.amax, options.counts);
}

template <class Launcher>
View upcast_cuda(const Context& ctx, const View& codes, dtype::DType format) {
  const std::int64_t n =
      codes.stride[1] == 1 ? codes.shape[0] * codes.stride[0] : codes.shape[1] * codes.stride[1];  // with padding
  View out = codes;
  out.dtype = dtype::DType::bf16;
  out.data = ctx.arena->allocate(static_cast<std::size_t>(n) * sizeof(dtype::Bf16), kCategory);
  if (ctx.dry) return out;
  dtype::with_fp8_grid(format, [&]<class Grid>() {
    const Launcher launch(ctx);
    launch("upcast", dim3(blocks_for(n, kCastThreads)), dim3(kCastThreads), upcast_kernel<Grid, dtype::Bf16>,
           codes.as<std::uint8_t>(), n, out.as<dtype::Bf16>());
  });
  return out;
}

// Codes with scales for blocks as BF16 values times inverse scales, or in f32 if these are not powers of two; zero in
// the padding.
template <class Launcher>
void fold_cuda(const Context& ctx, Quantized& q, bool power_of_2) {
  const bool last = q.contract == ContractionAxis::last;
  const std::int64_t lines = q.codes.shape[last ? 0 : 1], length = q.codes.shape[last ? 1 : 0];
  const std::int64_t stride = q.codes.stride[last ? 0 : 1], n = lines * stride;
  const auto* const codes = q.codes.as<std::uint8_t>();
  q.codes.dtype = power_of_2 || q.granularity == Granularity::row32 ? dtype::DType::bf16 : dtype::DType::f32;
  q.codes.data = ctx.arena->allocate(static_cast<std::size_t>(n) * dtype::size_of(q.codes.dtype), kCategory);
  q.folded = true;
  if (ctx.dry || n == 0) return;
  dtype::with_fp8_grid(q.format, [&]<class Grid>() {
    dtype::with_float_type(q.codes.dtype, "fold", [&]<class T>() {
      const Launcher launch(ctx);
      launch("fold", dim3(blocks_for(n, kCastThreads)), dim3(kCastThreads), fold_kernel<Grid, T>, codes, n, stride,
             length, q.inverse_scale.as<float>(), scale_grid(q), q.codes.as<T>());
    });
  });
}

template <class Launcher>
QuantizedPair quantize_cuda(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options) {
  QuantizedPair pair{.last = allocate_quantized(ctx, x, casts.last, ContractionAxis::last, options.known),
                     .first = allocate_quantized(ctx, x, casts.first, ContractionAxis::first, options.known)};
  if (!ctx.dry && (casts.last.fp8() || casts.first.fp8()))
    quantize_into(Launcher(ctx), x, pair, casts.shared(), options);
  for (Quantized* q : {&pair.last, &pair.first}) {
    const bool emulate = options.emulate || q->granularity == Granularity::row32;
    if (!emulate || q->codes.empty()) continue;
    if (has_blocks(*q))
      fold_cuda<Launcher>(ctx, *q, options.power_of_2);
    else
      q->codes = upcast_cuda<Launcher>(ctx, q->codes, q->format);
  }
  return pair;
}

template <class Launcher>
void cast_to_bytes_cuda(const Context& ctx, const View& x, dtype::DType format, const float* scale, const View& codes,
                        CastCounts* counts) {
  if (ctx.dry) return;
  launch_cast(Launcher(ctx), x,
              {.codes = codes.as<std::uint8_t>(), .stride = x.shape[1], .format = format, .scale = scale}, {}, false,
              {}, counts);
}

template <class Launcher>
View repack_cuda(const Context& ctx, const View& codes, ContractionAxis contract) {
  const std::int64_t rows = codes.shape[0], cols = codes.shape[1];
  if (contract == ContractionAxis::last && cols % 16 == 0) return codes;
  const View out = allocate_codes(ctx, rows, cols, contract);
  if (ctx.dry) return out;
  const bool by_row = contract == ContractionAxis::last;
  const CodeLayout to{.codes = out.as<std::uint8_t>(), .stride = out.stride[by_row ? 0 : 1]};
  launch_repack(Launcher(ctx), codes, by_row ? to : CodeLayout{}, by_row ? CodeLayout{} : to);
  return out;
}

}  // namespace fp8::quant
