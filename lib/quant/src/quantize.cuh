// Amaxes, scales and casts on a device: kernels, their launches, and the operations of cuda.h as templates over the
// launcher. Magnitudes are compared as integers and counts are integers: atomic operations on them give the same bits
// in any order.
#pragma once

#include <algorithm>

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

// Maximum magnitude bits of all of x, of each row and of each column; null: not wanted. Results must be zeroed before.
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

// --- casts ---

// Casts to codes that are adjacent along a line, which is a row or a column of the source.
template <class Grid>
struct Target {
  using Format = Grid;
  std::uint8_t* codes;  // null: not wanted
  std::int64_t stride;  // bytes from one line to the next; bytes past the end of a line become zero
  const float* scale;   // one per line, or one in all
  bool one;             // one in all
  __device__ std::uint8_t code(float v, std::int64_t line, unsigned& saturated, unsigned& underflowed) const {
    const float scaled = v * scale[one ? 0 : line];
    saturated += saturates<Grid>(scaled) ? 1u : 0u;
    underflowed += underflows<Grid>(scaled, v) ? 1u : 0u;
    return dtype::encode<Grid>(scaled);
  }
  __device__ std::uint8_t code(std::uint8_t v, std::int64_t, unsigned&, unsigned&) const { return v; }
};

inline constexpr int kTile = 128;              // rows and columns of a block
inline constexpr int kTileStride = kTile + 4;  // bytes of a column in shared memory; avoids bank conflicts

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

// Values of codes, element by element, padding included.
template <class Grid, class T>
__global__ void upcast_kernel(const std::uint8_t* codes, std::int64_t n, T* out) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float v = std::is_same_v<Grid, dtype::E4m3Grid> ? dtype::from_e4m3(codes[i]) : dtype::from_e5m2(codes[i]);
  out[i] = dtype::from_float<T>(v);
}

// --- launches ---

// Amaxes as f32 views; empty: not wanted.
struct Amaxes {
  View all, of_row, of_column;
};

template <class Launcher>
void launch_amax(const Launcher& launch, const View& x, const Amaxes& out) {
  const auto begin = [&](const View& v) {
    if (v.empty()) return static_cast<unsigned*>(nullptr);
    auto* const bits = static_cast<unsigned*>(v.data);
    launch("amax: begin", dim3(blocks_for(v.size(), kCastThreads)), dim3(kCastThreads), fill_kernel<unsigned>, bits,
           v.size(), 0u);
    return bits;
  };
  unsigned *const all = begin(out.all), *const of_row = begin(out.of_row), *const of_column = begin(out.of_column);
  dtype::with_float_type(x.dtype, "amax", [&]<class T>() {
    launch("amax", dim3(blocks_for(x.shape[1], kAmaxColumns), blocks_for(x.shape[0], kAmaxRows)), dim3(kCastThreads),
           amax_kernel<T>, x.as<T>(), x.shape[0], x.shape[1], x.stride[0], all, of_row, of_column);
  });
}

template <class Launcher>
void launch_scales(const Launcher& launch, const View& amax, dtype::DType format, bool power_of_2, const View& scales,
                   const View& inverse_scales) {
  launch("scale", dim3(blocks_for(scales.size(), kCastThreads)), dim3(kCastThreads), scale_kernel<float>,
         amax.as<float>(), scales.size(), dtype::max_of(format), power_of_2, scales.as<float>(),
         inverse_scales.as<float>());
}

// One layout of codes; `codes` null: not wanted. `scale`: one in all, or one per line.
struct CodeLayout {
  std::uint8_t* codes = nullptr;
  std::int64_t stride = 0;
  dtype::DType format = dtype::DType::e4m3;
  const float* scale = nullptr;
  bool one = true;
};

// Blocks that cover the matrix and the padding of the codes, which becomes zero.
inline dim3 cast_grid(const View& x, const CodeLayout& by_row, const CodeLayout& by_column) {
  const std::int64_t columns = std::max(x.shape[1], by_row.codes != nullptr ? by_row.stride : 0);
  const std::int64_t rows = std::max(x.shape[0], by_column.codes != nullptr ? by_column.stride : 0);
  return dim3(blocks_for(columns, kTile), blocks_for(rows, kTile));
}

template <class Launcher>
void launch_cast(const Launcher& launch, const View& x, const CodeLayout& by_row, const CodeLayout& by_column,
                 bool counted_once, CastCounts* counts) {
  if (x.size() == 0) return;
  dtype::with_float_type(x.dtype, "cast", [&]<class T>() {
    dtype::with_fp8_grid(by_row.format, [&]<class R>() {
      dtype::with_fp8_grid(by_column.format, [&]<class C>() {
        launch("cast", cast_grid(x, by_row, by_column), dim3(kCastThreads), cast_kernel<T, Target<R>, Target<C>>,
               x.as<T>(), x.shape[0], x.shape[1], x.stride[0],
               Target<R>{by_row.codes, by_row.stride, by_row.scale, by_row.one},
               Target<C>{by_column.codes, by_column.stride, by_column.scale, by_column.one}, counted_once,
               reinterpret_cast<unsigned long long*>(counts));
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
         Any{by_row.codes, by_row.stride, nullptr, true}, Any{by_column.codes, by_column.stride, nullptr, true}, true,
         static_cast<unsigned long long*>(nullptr));
}

// --- operations ---

inline constexpr std::string_view kCategory = "fp8 codes";

// Codes [rows, cols] with unit stride along the contracted dimension and a multiple of 16 along the other.
inline View allocate_codes(const Context& ctx, std::int64_t rows, std::int64_t cols, ContractionAxis contract) {
  if (contract == ContractionAxis::last)
    return tensor::allocate(ctx, dtype::DType::u8, {rows, round_up(cols, 16)}, kCategory).columns(0, cols);
  return tensor::allocate(ctx, dtype::DType::u8, {cols, round_up(rows, 16)}, kCategory).columns(0, rows).transposed();
}

// An empty result for a cast with Granularity::none.
inline Quantized allocate_quantized(const Context& ctx, const View& x, const Cast& cast, ContractionAxis contract) {
  if (!cast.fp8()) return {};
  const std::int64_t count =
      cast.granularity == Granularity::tensor ? 1 : x.shape[contract == ContractionAxis::last ? 0 : 1];
  return {.codes = allocate_codes(ctx, x.shape[0], x.shape[1], contract),
          .format = cast.format,
          .granularity = cast.granularity,
          .contract = contract,
          .scale = tensor::allocate(ctx, dtype::DType::f32, {count}, kCategory),
          .inverse_scale = tensor::allocate(ctx, dtype::DType::f32, {count}, kCategory)};
}

inline CodeLayout layout_of(const Quantized& q) {
  if (q.codes.empty()) return {};
  return {.codes = q.codes.as<std::uint8_t>(),
          .stride = q.codes.stride[q.contract == ContractionAxis::last ? 0 : 1],
          .format = q.format,
          .scale = q.scale.as<float>(),
          .one = q.granularity == Granularity::tensor};
}

// The result among `amaxes` for a granularity and contracted dimension.
inline View& amax_for(Amaxes& amaxes, Granularity granularity, ContractionAxis contract) {
  if (granularity == Granularity::tensor) return amaxes.all;
  return contract == ContractionAxis::last ? amaxes.of_row : amaxes.of_column;
}

template <class Launcher>
void amax_cuda(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract, const View& out) {
  if (ctx.dry) return;
  Amaxes amaxes;
  amax_for(amaxes, granularity, contract) = out;
  launch_amax(Launcher(ctx), x, amaxes);
}

// Amaxes, scales and codes into the memory of `pair`.
template <class Launcher>
void quantize_into(const Launcher& launch, const View& x, const QuantizedPair& pair, bool shared,
                   const CastOptions& options) {
  Amaxes amaxes;
  for (const Quantized* q : {&pair.last, &pair.first})
    if (!q->codes.empty()) amax_for(amaxes, q->granularity, q->contract) = q->scale;
  launch_amax(launch, x, amaxes);
  const bool both = !pair.last.codes.empty() && !pair.first.codes.empty();
  // If both have one scale in all, the amax was written to the scale of `first` only.
  const bool one_amax =
      both && pair.last.granularity == Granularity::tensor && pair.first.granularity == Granularity::tensor;
  const auto scale = [&](const Quantized& q, const View& amax) {
    if (!q.codes.empty()) launch_scales(launch, amax, q.format, options.power_of_2, q.scale, q.inverse_scale);
  };
  scale(pair.last, one_amax ? pair.first.scale : pair.last.scale);
  scale(pair.first, pair.first.scale);
  launch_cast(launch, x, layout_of(pair.last), layout_of(pair.first), shared, options.counts);
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

template <class Launcher>
QuantizedPair quantize_cuda(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options) {
  QuantizedPair pair{.last = allocate_quantized(ctx, x, casts.last, ContractionAxis::last),
                     .first = allocate_quantized(ctx, x, casts.first, ContractionAxis::first)};
  if (!ctx.dry && (casts.last.fp8() || casts.first.fp8()))
    quantize_into(Launcher(ctx), x, pair, casts.shared(), options);
  for (Quantized* q : {&pair.last, &pair.first})
    if (options.emulate && !q->codes.empty()) q->codes = upcast_cuda<Launcher>(ctx, q->codes, q->format);
  return pair;
}

template <class Launcher>
void cast_to_bytes_cuda(const Context& ctx, const View& x, dtype::DType format, const float* scale, const View& codes,
                        CastCounts* counts) {
  if (ctx.dry) return;
  launch_cast(Launcher(ctx), x,
              {.codes = codes.as<std::uint8_t>(), .stride = x.shape[1], .format = format, .scale = scale, .one = true},
              {}, false, counts);
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
