// From a matrix to operands on a device: memory, then launches. Templates over the launcher, which is made of the
// context once something is launched.
#pragma once

#include "quantize_cuda.cuh"

namespace fp8::quant {

inline constexpr std::string_view kCategory = "fp8 codes";

inline std::int64_t padded(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

// Codes [rows, cols] with unit stride along the contracted dimension.
inline View allocate_codes(const Context& ctx, std::int64_t rows, std::int64_t cols, ContractionAxis contract) {
  if (contract == ContractionAxis::last)
    return tensor::allocate(ctx, dtype::DType::u8, {rows, padded(cols)}, kCategory).columns(0, cols);
  return tensor::allocate(ctx, dtype::DType::u8, {cols, padded(rows)}, kCategory).columns(0, rows).transposed();
}

inline Quantized allocate_quantized(const Context& ctx, const View& x, const Cast& cast, ContractionAxis contract) {
  const std::int64_t count =
      cast.granularity == Granularity::tensor ? 1 : x.shape[contract == ContractionAxis::last ? 0 : 1];
  return {.codes = allocate_codes(ctx, x.shape[0], x.shape[1], contract),
          .format = cast.format,
          .granularity = cast.granularity,
          .contract = contract,
          .scale = tensor::allocate(ctx, dtype::DType::f32, {count}, kCategory),
          .inverse_scale = tensor::allocate(ctx, dtype::DType::f32, {count}, kCategory)};
}

// Bytes of codes and what lies between them.
inline std::int64_t span_of(const View& codes) {
  return codes.stride[1] == 1 ? codes.shape[0] * codes.stride[0] : codes.shape[1] * codes.stride[1];
}

template <class Launcher>
View upcast_cuda(const Context& ctx, const View& codes, dtype::DType format) {
  View wide = codes;
  wide.dtype = dtype::DType::bf16;
  wide.data = ctx.arena->allocate(static_cast<std::size_t>(span_of(codes)) * sizeof(dtype::Bf16), kCategory);
  if (!ctx.dry) upcast_cuda(Launcher(ctx), codes.as<std::uint8_t>(), span_of(codes), format, wide.as<dtype::Bf16>());
  return wide;
}

inline Wanted wanted(const Quantized& q) {
  if (q.codes.empty()) return {};
  return {.codes = q.codes.as<std::uint8_t>(),
          .stride = q.codes.stride[q.contract == ContractionAxis::last ? 0 : 1],
          .format = q.format,
          .scale = q.scale.as<float>(),
          .one = q.granularity == Granularity::tensor};
}

// What both has memory for.
template <class Launcher>
void quantize_into(const Launcher& launch, const View& x, const Casts& casts, const Both& both,
                   const CastOptions& options) {
  const bool columns = !both.columns.codes.empty(), rows = !both.rows.codes.empty();
  const bool shared = columns && rows && casts.shared();
  Magnitudes magnitudes;
  const auto ask = [&](const Quantized& q) {
    (q.granularity == Granularity::tensor  ? magnitudes.all
     : q.contract == ContractionAxis::last ? magnitudes.of_row
                                           : magnitudes.of_column) = q.scale;
  };
  if (columns) ask(both.columns);
  if (rows) ask(both.rows);
  amax_cuda(launch, x, magnitudes);
  // Where both are wanted of one tensor-wide magnitude, it has been written to one place only.
  const bool one_magnitude = columns && rows && both.columns.granularity == Granularity::tensor &&
                             both.rows.granularity == Granularity::tensor;
  if (one_magnitude)
    scales_cuda(launch, both.rows.scale, casts.columns.format, options.power_of_2, both.columns.scale,
                both.columns.inverse_scale);
  else if (columns)
    scales_cuda(launch, both.columns.scale, casts.columns.format, options.power_of_2, both.columns.scale,
                both.columns.inverse_scale);
  if (rows)
    scales_cuda(launch, both.rows.scale, casts.rows.format, options.power_of_2, both.rows.scale,
                both.rows.inverse_scale);
  cast_cuda(launch, x, wanted(both.columns), wanted(both.rows), shared, options.counts);
}

template <class Launcher>
Both quantize_cuda(const Context& ctx, const View& x, const Casts& casts, bool columns, bool rows,
                   const CastOptions& options) {
  Both both;
  columns = columns && casts.columns.granularity != Granularity::none;
  rows = rows && casts.rows.granularity != Granularity::none;
  if (columns) both.columns = allocate_quantized(ctx, x, casts.columns, ContractionAxis::last);
  if (rows) both.rows = allocate_quantized(ctx, x, casts.rows, ContractionAxis::first);
  if (!ctx.dry && (columns || rows)) quantize_into(Launcher(ctx), x, casts, both, options);
  for (Quantized* q : {&both.columns, &both.rows})
    if (options.emulate && !q->codes.empty()) q->codes = upcast_cuda<Launcher>(ctx, q->codes, q->format);
  return both;
}

template <class Launcher>
void amax_into_cuda(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract,
                    const View& out) {
  if (ctx.dry) return;
  Magnitudes magnitudes;
  (granularity == Granularity::tensor  ? magnitudes.all
   : contract == ContractionAxis::last ? magnitudes.of_row
                                       : magnitudes.of_column) = out;
  amax_cuda(Launcher(ctx), x, magnitudes);
}

template <class Launcher>
void cast_to_bytes_cuda(const Context& ctx, const View& x, dtype::DType format, const float* scale, const View& codes,
                        CastCounts* counts) {
  if (ctx.dry) return;
  cast_cuda(Launcher(ctx), x,
            {.codes = codes.as<std::uint8_t>(), .stride = x.shape[1], .format = format, .scale = scale, .one = true},
            {}, false, counts);
}

template <class Launcher>
View repack_cuda(const Context& ctx, const View& codes, ContractionAxis contract) {
  const std::int64_t rows = codes.shape[0], cols = codes.shape[1];
  if (contract == ContractionAxis::last && cols % 16 == 0) return codes;
  const View out = allocate_codes(ctx, rows, cols, contract);
  if (ctx.dry) return out;
  const Wanted to{.codes = out.as<std::uint8_t>(), .stride = out.stride[contract == ContractionAxis::last ? 0 : 1]};
  contract == ContractionAxis::last ? repack_cuda_codes(Launcher(ctx), codes, to, {})
                                    : repack_cuda_codes(Launcher(ctx), codes, {}, to);
  return out;
}

}  // namespace fp8::quant
