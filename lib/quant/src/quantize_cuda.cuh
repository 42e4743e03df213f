// Kernels of this crate: largest magnitudes, scales, casts. Magnitudes are compared as integers and counts are
// integers: atomic operations on them give the same bits in any order.
#pragma once

#include "cuda.h"
#include "fp8/device/kernel.h"
#include "fp8/quant/scale.h"
#include "kernels.h"

namespace fp8::quant {

using device::blocks_for;
using device::LargestBits;

inline constexpr int kCastThreads = 256;
inline constexpr int kPiece = 8;  // neighbouring elements of a thread

// kPiece elements of a row from column c on, as float or byte; those past the end are 0.
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

// --- largest magnitudes
// -----------------------------------------------------------------------------------------------

inline constexpr int kAmaxRows = 128, kAmaxColumns = device::kWarp * kPiece;  // tile of a block

// Bits of the largest magnitudes of all of x, of its rows, of its columns; null: not wanted. The results begin at zero.
template <class T>
__global__ void amax_kernel(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t stride, unsigned* all,
                            unsigned* of_row, unsigned* of_column) {
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
      const unsigned bits = magnitude_bits(piece.at[k]);
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
__global__ void scale_kernel(const F* amax, std::int64_t n, F max, bool power_of_2, F* scale, F* inverse_scale) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const F s = scale_from_amax(amax[i], max, power_of_2);
  scale[i] = s;
  inverse_scale[i] = 1.0f / s;
}

// --- casts
// --------------------------------------------------------------------------------------------------------------

// Where codes go that are neighbours along a line (a row, or a column of the source) and what makes them.
template <class Grid>
struct Target {
  using Format = Grid;
  std::uint8_t* codes;  // null: not wanted
  std::int64_t stride;  // bytes from one line to the next; those past the line's end become zero
  const float* scale;   // of each line, or one
  bool one;             // scale[0] serves all
  __device__ std::uint8_t code(float v, std::int64_t line, unsigned& saturated, unsigned& underflowed) const {
    const float scaled = v * scale[one ? 0 : line];
    saturated += clamped<Grid>(scaled) ? 1u : 0u;
    underflowed += vanished<Grid>(scaled, v) ? 1u : 0u;
    return dtype::encode<Grid>(scaled);
  }
  __device__ std::uint8_t code(std::uint8_t v, std::int64_t, unsigned&, unsigned&) const { return v; }
};

inline constexpr int kTile = 128;              // rows and columns of a block
inline constexpr int kTileStride = kTile + 4;  // bytes of a column in shared memory; spreads columns over the banks

// kPiece bytes of a line from `at` on, 8 at once where that is aligned and inside.
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

// Codes of a tile of x by rows, by columns, or both. `counted`: both are the same codes and are counted once.
template <class T, class Row, class Column>
__global__ void cast_kernel(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t stride, Row row,
                            Column column, bool counted_once, unsigned long long* counts) {
  alignas(8) __shared__ std::uint8_t across[kTile * kTileStride];
  constexpr int kGroups = kTile / kPiece, kStep = kCastThreads / kGroups;
  const int group = static_cast<int>(threadIdx.x) % kGroups, lane = static_cast<int>(threadIdx.x) / kGroups;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kTile;
  const std::int64_t first_col = static_cast<std::int64_t>(blockIdx.x) * kTile, c = first_col + group * kPiece;
  const bool packed = device::packs(x, stride);
  unsigned saturated = 0, underflowed = 0, ignored = 0;
  for (int i = lane; i < kTile; i += kStep) {
    const std::int64_t r = first_row + i;
    Piece<T> piece;
    piece.load(x + (r < rows ? r * stride : 0), c, r < rows ? cols : 0, packed);
    std::uint8_t codes[kPiece];
    if (row.codes != nullptr && r < rows) {
      for (int k = 0; k < kPiece; ++k)
        codes[k] = c + k < cols ? row.code(piece.at[k], r, saturated, underflowed) : std::uint8_t{0};
      store_piece(row.codes + r * row.stride, c, row.stride, codes);
    }
    if (column.codes == nullptr) continue;
    for (int k = 0; k < kPiece; ++k) {
      const bool inside = r < rows && c + k < cols;
      const std::uint8_t code = !inside        ? std::uint8_t{0}
                                : counted_once ? column.code(piece.at[k], c + k, ignored, ignored)
                                               : column.code(piece.at[k], c + k, saturated, underflowed);
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

// Codes one by one as the numbers they stand for, the zeros between lines included.
template <class Grid, class T>
__global__ void upcast_kernel(const std::uint8_t* codes, std::int64_t n, T* out) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float v = std::is_same_v<Grid, dtype::E4m3Grid> ? dtype::from_e4m3(codes[i]) : dtype::from_e5m2(codes[i]);
  out[i] = dtype::from_float<T>(v);
}

// --- launches
// ---------------------------------------------------------------------------------------------------------

// Calls f.template operator()<T>() with the element type of x.
template <class F>
void with_source(const View& x, F f) {
  x.dtype == dtype::DType::f32 ? f.template operator()<float>() : f.template operator()<dtype::Bf16>();
}

// Calls f.template operator()<Grid>() with an FP8 format, which was checked.
template <class F>
void with_format(dtype::DType format, F f) {
  format == dtype::DType::e4m3 ? f.template operator()<dtype::E4m3Grid>() : f.template operator()<dtype::E5m2Grid>();
}

// Bits of the largest magnitudes, f32 each; empty: not wanted.
struct Magnitudes {
  View all, of_row, of_column;
};

template <class Launcher>
void amax_cuda(const Launcher& launch, const View& x, const Magnitudes& out) {
  const auto begin = [&](const View& v) {
    if (v.empty()) return static_cast<unsigned*>(nullptr);
    auto* const bits = static_cast<unsigned*>(v.data);
    launch("amax: begin", dim3(blocks_for(v.size(), kCastThreads)), dim3(kCastThreads), fill_kernel<unsigned>, bits,
           v.size(), 0u);
    return bits;
  };
  unsigned *const all = begin(out.all), *const of_row = begin(out.of_row), *const of_column = begin(out.of_column);
  with_source(x, [&]<class T>() {
    launch("amax", dim3(blocks_for(x.shape[1], kAmaxColumns), blocks_for(x.shape[0], kAmaxRows)), dim3(kCastThreads),
           amax_kernel<T>, x.as<T>(), x.shape[0], x.shape[1], x.stride[0], all, of_row, of_column);
  });
}

template <class Launcher>
void scales_cuda(const Launcher& launch, const View& amax, dtype::DType format, bool power_of_2, const View& scales,
                 const View& inverse_scales) {
  launch("scale", dim3(blocks_for(scales.size(), kCastThreads)), dim3(kCastThreads), scale_kernel<float>,
         amax.as<float>(), scales.size(), dtype::max_of(format), power_of_2, scales.as<float>(),
         inverse_scales.as<float>());
}

// One layout of codes that is wanted; `codes` empty: not wanted. `scale` is one, or one a line.
struct Wanted {
  std::uint8_t* codes = nullptr;
  std::int64_t stride = 0;
  dtype::DType format = dtype::DType::e4m3;
  const float* scale = nullptr;
  bool one = true;
};

template <class Launcher>
void cast_cuda(const Launcher& launch, const View& x, const Wanted& by_row, const Wanted& by_column, bool counted_once,
               CastCounts* counts) {
  // Blocks cover what is past the last column or row, up to the stride: there the codes are zero.
  const std::int64_t wide = std::max(x.shape[1], by_row.codes != nullptr ? by_row.stride : 0);
  const std::int64_t high = std::max(x.shape[0], by_column.codes != nullptr ? by_column.stride : 0);
  if (x.size() == 0) return;
  with_source(x, [&]<class T>() {
    with_format(by_row.format, [&]<class R>() {
      with_format(by_column.format, [&]<class C>() {
        launch("cast", dim3(blocks_for(wide, kTile), blocks_for(high, kTile)), dim3(kCastThreads),
               cast_kernel<T, Target<R>, Target<C>>, x.as<T>(), x.shape[0], x.shape[1], x.stride[0],
               Target<R>{by_row.codes, by_row.stride, by_row.scale, by_row.one},
               Target<C>{by_column.codes, by_column.stride, by_column.scale, by_column.one}, counted_once,
               reinterpret_cast<unsigned long long*>(counts));
      });
    });
  });
}

// Bytes laid out anew, by rows or by columns.
template <class Launcher>
void repack_cuda_codes(const Launcher& launch, const View& codes, const Wanted& by_row, const Wanted& by_column) {
  if (codes.size() == 0) return;
  const std::int64_t wide = std::max(codes.shape[1], by_row.codes != nullptr ? by_row.stride : 0);
  const std::int64_t high = std::max(codes.shape[0], by_column.codes != nullptr ? by_column.stride : 0);
  using Any = Target<dtype::E4m3Grid>;
  launch("codes", dim3(blocks_for(wide, kTile), blocks_for(high, kTile)), dim3(kCastThreads),
         cast_kernel<std::uint8_t, Any, Any>, codes.as<std::uint8_t>(), codes.shape[0], codes.shape[1], codes.stride[0],
         Any{by_row.codes, by_row.stride, nullptr, true}, Any{by_column.codes, by_column.stride, nullptr, true}, true,
         static_cast<unsigned long long*>(nullptr));
}

// n codes of one format, as they lie.
template <class Launcher>
void upcast_cuda(const Launcher& launch, const std::uint8_t* codes, std::int64_t n, dtype::DType format,
                 dtype::Bf16* out) {
  with_format(format, [&]<class Grid>() {
    launch("widen", dim3(blocks_for(n, kCastThreads)), dim3(kCastThreads), upcast_kernel<Grid, dtype::Bf16>, codes, n,
           out);
  });
}

}  // namespace fp8::quant
