// Checks, and the host's loops, of casts whose scales are folded into another operand.
#include "fp8/quant/fold.h"

#include "cast_block.h"
#include "cuda.h"
#include "device_cast.h"
#include "fp8/device/profile.h"
#include "fp8/dtype/dispatch.h"
#include "fp8/quant/scale.h"
#include "matrix.h"
#include "split.h"

namespace fp8::quant {

using dtype::DType;

View scale_columns(const Context& ctx, const View& x, const View& factors) {
  require_matrix(ctx, x, "scale_columns");
  require_device(ctx, factors, "scale_columns");
  if (!unit_columns(x) || factors.size() != x.shape[1] || !factors.contiguous())
    throw Error("scale_columns: needs unit column stride and a factor for each column");
  const View out = tensor::allocate(ctx, x.dtype, {x.shape[0], x.shape[1]}, "scratch");
  const device::Timer timer(ctx, device::Work::cast, "fold scales", tensor::bytes_of(x, out),
                            static_cast<double>(x.size()));
  if (ctx.dry) return out;
  if (on_device(ctx)) {
    cuda::scale_columns(ctx, x, factors, out);
    return out;
  }
  dtype::with_float_type(x.dtype, "scale_columns", [&]<class T>() {
    const MatrixRows<T> rows = rows_of<T>(x);
    const float* const factor = factors.as<float>();
#pragma omp parallel for if (rows.parallel())
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const T* const from = rows.row(r);
      T* const to = out.as<T>() + r * rows.length;
      for (std::int64_t c = 0; c < rows.length; ++c) to[c] = dtype::from_float<T>(dtype::to_float(from[c]) * factor[c]);
    }
  });
  return out;
}

View unit_scale(const Context& ctx) {
  const View one = tensor::allocate(ctx, DType::f32, {1}, "fp8 codes");
  const device::Timer timer(ctx, device::Work::cast, "unit scale", tensor::bytes_of(one));
  if (ctx.dry) return one;
  if (on_device(ctx)) {
    cuda::fill(ctx, one, 1.0f);
  } else {
    *one.as<float>() = 1.0f;
  }
  return one;
}

Quantized without_scales(const Context& ctx, const Quantized& rows, bool emulate) {
  if (rows.granularity != Granularity::row || rows.contract != ContractionAxis::last)
    throw Error("without_scales: expected a scale for each row");
  Quantized q = rows;
  q.granularity = Granularity::tensor;
  q.contract = ContractionAxis::first;
  q.scale = q.inverse_scale = unit_scale(ctx);
  if (!on_device(ctx)) return q;
  const device::Timer timer(ctx, device::Work::cast, "decode", (emulate ? 5 : 2) * tensor::bytes_of(rows.codes), 0,
                            emulate ? 2 : 1);
  q.codes = repack(ctx, rows.codes, ContractionAxis::first);
  if (emulate) q.codes = upcast(ctx, q.codes, q.format);
  return q;
}

View reciprocals(const Context& ctx, const View& scales) {
  require_device(ctx, scales, "reciprocals");
  const View out = tensor::allocate(ctx, DType::f32, {scales.size()}, "fp8 codes");
  const device::Timer timer(ctx, device::Work::cast, "reciprocals", tensor::bytes_of(scales, out));
  if (ctx.dry) return out;
  if (on_device(ctx)) {
    cuda::reciprocals(ctx, scales, out);
  } else {
    for (std::int64_t i = 0; i < scales.size(); ++i) out.as<float>()[i] = 1.0f / scales.as<float>()[i];
  }
  return out;
}

void cast_rows_to_bytes(const Context& ctx, const View& x, DType format, const CastOptions& options, const View& codes,
                        const View& scales) {
  require_matrix(ctx, x, "cast_rows_to_bytes");
  const float max = dtype::max_of(format);
  if (!unit_columns(x) || codes.shape != x.shape || !codes.contiguous() || scales.size() != x.shape[0])
    throw Error("cast_rows_to_bytes: codes or scales do not have the shape of the matrix");
  // Zeros, amaxes, scales, codes; on the host one pass over each row.
  const device::Timer timer(ctx, device::Work::cast, "cast to bytes",
                            (on_device(ctx) ? 2 : 1) * tensor::bytes_of(x) + tensor::bytes_of(codes) +
                                kBytesOfRowScale * static_cast<double>(x.shape[0]),
                            2 * static_cast<double>(x.size()), 4);
  const bool on_ranks = covers_ranks({format, Granularity::row}, ContractionAxis::last, options.split);
  if (ctx.dry && on_ranks) reduce(ctx, options.split, scales);
  if (ctx.dry) return;
  if (on_device(ctx)) return cuda::cast_rows_to_bytes(ctx, x, format, options, codes, scales);
  if (on_ranks) {
    amax(ctx, x, Granularity::row, ContractionAxis::last, scales);
    reduce(ctx, options.split, scales);
  }
  CastCounts done;
  dtype::with_fp8_grid(format, [&]<class Grid>() {
    dtype::with_float_type(x.dtype, "cast_rows_to_bytes", [&]<class T>() {
      const MatrixRows<T> rows = rows_of<T>(x);
      done = cast_rows<Grid>(rows, codes.as<std::uint8_t>(), [&](std::int64_t r) {
        const float largest = on_ranks ? scales.as<float>()[r] : from_magnitude(amax_row(rows.row(r), rows.length));
        return OneScale{scales.as<float>()[r] = scale_by_rule(options.rule, largest, max, options.power_of_2)};
      });
    });
  });
  if (options.counts != nullptr) *options.counts += done;
}

void cast_columns_to_bytes(const Context& ctx, const View& x, DType format, const View& scales, const View& codes,
                           CastCounts* counts) {
  require_matrix(ctx, x, "cast_columns_to_bytes");
  for (const View& v : {scales, codes}) require_device(ctx, v, "cast_columns_to_bytes");
  dtype::max_of(format);  // throws unless FP8
  if (!unit_columns(x) || codes.shape != x.shape || !codes.contiguous() || scales.size() != x.shape[1])
    throw Error("cast_columns_to_bytes: codes or scales do not have the shape of the matrix");
  const device::Timer timer(ctx, device::Work::cast, "cast to bytes", tensor::bytes_of(x, codes, scales),
                            static_cast<double>(x.size()));
  if (ctx.dry) return;
  if (on_device(ctx)) return cuda::cast_columns_to_bytes(ctx, x, format, scales, codes, counts);
  CastCounts done;
  dtype::with_fp8_grid(format, [&]<class Grid>() {
    dtype::with_float_type(x.dtype, "cast_columns_to_bytes", [&]<class T>() {
      done = cast_rows<Grid>(rows_of<T>(x), codes.as<std::uint8_t>(),
                             [&](std::int64_t) -> const float* { return scales.as<float>(); });
    });
  });
  if (counts != nullptr) *counts += done;
}

void cast_blocks_to_bytes(const Context& ctx, const View& x, const CastOptions& options, const View& codes,
                          const View& scales, const View& inverse_scales) {
  require_matrix(ctx, x, "cast_blocks_to_bytes");
  constexpr std::int64_t kSquare = block_extent(Granularity::block128x128).along;
  const std::int64_t down = divide_up(x.shape[0], kSquare), across = divide_up(x.shape[1], kSquare);
  if (!unit_columns(x) || codes.shape != x.shape || !codes.contiguous())
    throw Error("cast_blocks_to_bytes: the codes do not have the shape of the matrix");
  for (const View& v : {scales, inverse_scales})
    if (v.rank != 2 || v.shape[0] != down || v.shape[1] != across || !v.contiguous())
      throw Error("cast_blocks_to_bytes: the scales are not those of blocks of 128 x 128");
  const Quantized q{.codes = codes,
                    .format = DType::e4m3,
                    .granularity = Granularity::block128x128,
                    .scale = scales,
                    .inverse_scale = inverse_scales};
  CastOptions of_blocks = options;
  of_blocks.known = {};
  of_blocks.split = {};
  device::Span span = span_of_cast(x, {.last = {q.format, q.granularity}, .first = {}}, of_blocks);
  span.name = "cast to bytes";
  const device::Timer timer(ctx, span);
  if (ctx.dry) return;
  if (on_device(ctx)) return cuda::cast_blocks_to_bytes(ctx, x, q, of_blocks);
  const CastCounts done = cast_squares_to_bytes(x, q, options);
  if (options.counts != nullptr) *options.counts += done;
}

void fold_blocks(const Context& ctx, Quantized& q) {
  if (on_device(ctx)) return;
  const device::Timer timer(ctx, device::Work::cast, "fold scales", 2 * tensor::bytes_of(q.codes),
                            static_cast<double>(q.codes.size()));
  if (!ctx.dry) fold_squares(q);
}

}  // namespace fp8::quant
