// The operations of cuda.h that quantize, as templates over the launcher. Kernels and their launches are in amax.cuh,
// cast.cuh, block_scale.cuh and decode.cuh.
#pragma once

#include "block_scale.cuh"
#include "cast_block.h"
#include "decode.cuh"
#include "fp8/base/round.h"
#include "own_amax.h"
#include "split.h"

namespace fp8::quant {

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
  const bool last = contract == ContractionAxis::last;
  const std::int64_t step = cast.granularity == Granularity::block1x128 ? kDeviceRows : 1;
  const View codes =
      allocate_codes(ctx, round_up(x.shape[0], last ? step : 1), round_up(x.shape[1], last ? 1 : step), contract);
  return {.codes = last ? codes.rows(0, x.shape[0]) : codes.columns(0, x.shape[1]),
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
           block_scale_kernel<T>, Source<T>{x.as<T>(), x.shape[0], x.shape[1], x.stride[0]}, row, column);
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
void scales_into(const Context& ctx, const Launcher& launch, const View& x, const QuantizedPair& pair,
                 const CastOptions& options) {
  const auto wanted = [&pair](const Quantized& q) {
    const bool repeats = &q == &pair.first && pair.first.scale.data == pair.last.scale.data;
    return !q.codes.empty() && !has_blocks(q) && !repeats;
  };
  if (!wanted(pair.last) && !wanted(pair.first)) return;
  // Amaxes are written to the memory of scales; the amax of the whole matrix, if both need it, to the scale of `first`.
  Amaxes amaxes;
  for (const Quantized* q : {&pair.last, &pair.first})
    if (wanted(*q)) amax_for(amaxes, q->granularity, q->contract) = q->scale;
  const View all = options.amax.empty() ? amaxes.all : options.amax;
  if (!options.amax.empty()) amaxes.all = {};
  launch_amax(launch, x, amaxes, skips_nan(options.rule));
  for (const Quantized* q : {&pair.last, &pair.first}) {
    if (!wanted(*q)) continue;
    const View& amax = q->granularity == Granularity::tensor ? all : q->scale;
    const bool rows_on_ranks =
        q->granularity == Granularity::row && covers_ranks({q->format, q->granularity}, q->contract, options.split);
    if (rows_on_ranks) reduce(ctx, options.split, amax);
    launch_scales(launch, amax, {q->format, options.rule, options.power_of_2}, q->scale, q->inverse_scale);
  }
}

// Scales, if they are not known, and codes into the memory of `pair`.
template <class Launcher>
void quantize_into(const Context& ctx, const Launcher& launch, const View& x, const QuantizedPair& pair, bool shared,
                   const CastOptions& options) {
  if (options.known.scale.empty()) scales_into(ctx, launch, x, pair, options);
  launch_block_scales(launch, x, pair, options.power_of_2);
  launch_cast(launch, x, layout_of(pair.last), layout_of(pair.first), shared, options.known.amax, options.counts);
}

template <class Launcher>
View upcast_cuda(const Context& ctx, const View& codes, dtype::DType format) {
  const std::int64_t n =
      codes.stride[1] == 1 ? codes.shape[0] * codes.stride[0] : codes.shape[1] * codes.stride[1];  // size with padding
  View out = codes;
  out.dtype = dtype::DType::bf16;
  out.data = ctx.arena->allocate(static_cast<std::size_t>(n) * sizeof(dtype::Bf16), kCategory);
  if (ctx.dry) return out;
  dtype::with_fp8_grid(format, [&]<class Grid>() {
    const Launcher launch(ctx);
    launch("upcast", dim3(blocks_for(n, kCastThreads * kPiece)), dim3(kCastThreads), upcast_kernel<Grid, dtype::Bf16>,
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
  auto* const codes = q.codes.as<std::uint8_t>();
  q.codes.dtype = power_of_2 || q.granularity == Granularity::block1x32 ? dtype::DType::bf16 : dtype::DType::f32;
  q.codes.data = ctx.arena->allocate(static_cast<std::size_t>(n) * dtype::size_of(q.codes.dtype), kCategory);
  q.folded = true;
  if (ctx.dry || n == 0) return;
  dtype::with_fp8_grid(q.format, [&]<class Grid>() {
    dtype::with_float_type(q.codes.dtype, "fold", [&]<class T>() {
      const Launcher launch(ctx);
      launch("fold", dim3(blocks_for(stride, kTile), blocks_for(lines, kTile)), dim3(kCastThreads),
             fold_kernel<Grid, T>, CodeLines{codes, stride}, lines, length, q.inverse_scale.as<float>(), scale_grid(q),
             q.codes.as<T>());
    });
  });
}

template <class Launcher>
QuantizedPair quantize_cuda(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& given) {
  const CastOptions options = options_of_cast(given);
  QuantizedPair pair{.last = allocate_quantized(ctx, x, casts.last, ContractionAxis::last, options.known), .first = {}};
  KnownScale of_first = options.known;  // a scale of the whole matrix is the scale of `last`
  if (casts.shared() && casts.last.granularity == Granularity::tensor)
    of_first = {pair.last.scale, pair.last.inverse_scale, {}};
  pair.first = allocate_quantized(ctx, x, casts.first, ContractionAxis::first, of_first);
  if (!ctx.dry && (casts.last.fp8() || casts.first.fp8()))
    quantize_into(ctx, Launcher(ctx), x, pair, casts.shared(), options);
  for (Quantized* q : {&pair.last, &pair.first}) {
    const bool emulate = options.emulate || q->granularity == Granularity::block1x32;
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
