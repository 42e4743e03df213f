// The operations of cuda.h that quantize, as templates over the launcher. Kernels and their launches are in amax.cuh,
// cast.cuh, block_scale.cuh and decode.cuh.
#pragma once

#include "amax.cuh"
#include "cast_block.h"
#include "decode.cuh"
#include "device_cast.h"
#include "fp8/base/round.h"
#include "fp8/quant/block_scale.cuh"
#include "own_amax.h"
#include "split.h"

namespace fp8::quant {

// launch_cast() of a view.
template <class Launcher>
void launch_cast(const Launcher& launch, const View& x, const CodeLayout& by_row, const CodeLayout& by_column,
                 bool shared, const View& amax, CastCounts* counts) {
  dtype::with_float_type(x.dtype, "cast", [&]<class T>() {
    launch_cast(launch, "cast", Source<T>{x.as<T>(), x.shape[0], x.shape[1], x.stride[0]}, by_row, by_column, shared,
                amax, counts);
  });
}

// The result among `amaxes` for a granularity and contracted dimension.
inline View& amax_for(Amaxes& amaxes, Granularity granularity, ContractionAxis contract) {
  if (granularity == Granularity::tensor) return amaxes.all;
  return contract == ContractionAxis::last ? amaxes.of_row : amaxes.of_column;
}

template <class Launcher>
void amax_cuda(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract, const View& out,
               bool skip_nan) {
  Amaxes amaxes;
  amax_for(amaxes, granularity, contract) = out;
  launch_amax(Launcher(ctx), x, amaxes, skip_nan);
}

// Amaxes and scales of the casts without blocks, into the memory of `pair`.
template <class Launcher>
void scales_into(const Context& ctx, const Launcher& launch, const View& x, const QuantizedPair& pair,
                 const CastOptions& options) {
  const auto wanted = [&pair](const Quantized& q) { return computes_scales(pair, q); };
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
    reduce_amaxes(ctx, *q, options, amax);
    launch_scales(launch, amax, {q->format, options.rule, options.power_of_2}, q->scale, q->inverse_scale);
  }
}

// Scales, if they are not known, and codes into the memory of `pair`.
template <class Launcher>
void quantize_into(const Context& ctx, const Launcher& launch, const View& x, const QuantizedPair& pair, bool shared,
                   const CastOptions& options) {
  if (options.known.scale.empty()) scales_into(ctx, launch, x, pair, options);
  launch_cast(launch, x, layout_of(pair.last, options.power_of_2), layout_of(pair.first, options.power_of_2), shared,
              options.known.amax, options.counts);
}

template <class Launcher>
View upcast_cuda(const Context& ctx, const View& codes, dtype::DType format) {
  const View out = allocate_upcast(ctx, codes);
  const std::int64_t n =
      codes.stride[1] == 1 ? codes.shape[0] * codes.stride[0] : codes.shape[1] * codes.stride[1];  // size with padding
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
  const std::int64_t stride = q.codes.stride[last ? 0 : 1];
  auto* const codes = q.codes.as<std::uint8_t>();
  q.codes = allocate_folded(ctx, q, power_of_2);
  q.folded = true;
  if (lines * stride == 0) return;
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
QuantizedPair quantize_cuda(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& given,
                            device::PooledMemory* keep) {
  const CastOptions options = options_of_cast(given);
  QuantizedPair pair = allocate_pair(ctx, x, casts, options, keep);
  const bool once = casts.shared() && (keep == nullptr || options.counts == nullptr);
  if (casts.last.fp8() || casts.first.fp8()) quantize_into(ctx, Launcher(ctx), x, pair, once, options);
  for (Quantized* q : {&pair.last, &pair.first}) {
    if (!emulates(options, *q)) continue;
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
  launch_cast(Launcher(ctx), x,
              {.codes = codes.as<std::uint8_t>(), .stride = x.shape[1], .format = format, .scale = scale}, {}, false,
              {}, counts);
}

template <class Launcher>
View repack_cuda(const Context& ctx, const View& codes, ContractionAxis contract) {
  const View out = allocate_codes(ctx, codes.shape[0], codes.shape[1], contract);
  const bool by_row = contract == ContractionAxis::last;
  const CodeLayout to{.codes = out.as<std::uint8_t>(), .stride = out.stride[by_row ? 0 : 1]};
  launch_repack(Launcher(ctx), codes, by_row ? to : CodeLayout{}, by_row ? CodeLayout{} : to);
  return out;
}

}  // namespace fp8::quant
