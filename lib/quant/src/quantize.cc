// Checks the arguments of casts of matrices, then runs them on the host, or on a device through cuda.h. On the host:
// scales from amaxes, then one pass over the rows, rows in parallel. Counts are integers, so results do not depend on
// the number of threads.
#include "fp8/quant/quantize.h"

#include <algorithm>
#include <array>

#include "cast_block.h"
#include "cuda.h"
#include "device_cast.h"
#include "fp4_cast.h"
#include "fp8/device/profile.h"
#include "fp8/dtype/convert.h"
#include "fp8/dtype/dispatch.h"
#include "fp8/dtype/e2m1.h"
#include "fp8/quant/keep.h"
#include "fp8/quant/scale.h"
#include "matrix.h"
#include "own_amax.h"
#include "split.h"

namespace fp8::quant {
namespace {

using dtype::DType;

constexpr std::string_view kCategory = "fp8 codes";
constexpr std::int64_t kSquare = block_extent(Granularity::block128x128).across;

// Bytes that a cast on the host reads and writes: x twice, for the amax and for the cast, and codes of two bytes.
double bytes_to_quantize(const View& x) { return 2 * tensor::bytes_of(x) + 2 * static_cast<double>(x.size()); }

double flops_of(const View& v, double each) { return each * static_cast<double>(v.size()); }

// Casts a column-major matrix to row-major codes: pieces of each row are gathered first.
template <class Grid, class T>
CastCounts cast_column_major(const View& x, OneScale scale, std::uint8_t* out) {
  constexpr std::int64_t kPiece = 256;
  const T* const data = x.as<T>();
  const std::int64_t cols = x.shape[1];
  std::int64_t saturated = 0, underflowed = 0;
#pragma omp parallel for reduction(+ : saturated, underflowed) if (x.size() >= kParallelElements)
  for (std::int64_t r = 0; r < x.shape[0]; ++r) {
    std::array<T, kPiece> piece;
    for (std::int64_t begin = 0; begin < cols; begin += kPiece) {
      const std::int64_t n = std::min(kPiece, cols - begin);
      for (std::int64_t i = 0; i < n; ++i)
        piece[static_cast<std::size_t>(i)] = data[r * x.stride[0] + (begin + i) * x.stride[1]];
      const RowCounts counts = cast_row<Grid>(piece.data(), scale, out + r * cols + begin, n);
      saturated += counts.saturated;
      underflowed += counts.underflowed;
    }
  }
  return {.elements = x.size(), .saturated = saturated, .underflowed = underflowed};
}

// Codes of x [rows, cols] to `out`, as BF16, and their scales to `scales`: one, one per row, or one per column.
template <class Grid, class T>
CastCounts cast_bf16(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract,
                     const CastOptions& options, const View& scales, Bf16* out) {
  const KnownScale& known = options.known;
  auto* const scale = scales.as<float>();
  const MatrixRows<T> rows = rows_of<T>(x);
  const auto scale_of = [&](float largest) {
    return scale_by_rule(options.rule, largest, Grid::kMax, options.power_of_2);
  };
  const bool rows_on_ranks =
      granularity == Granularity::row && covers_ranks({DType::e4m3, granularity}, contract, options.split);
  if (granularity == Granularity::row && contract == ContractionAxis::last && !rows_on_ranks) {
    // The row is still in the L1 cache when it is cast.
    return cast_rows<Grid>(rows, out, [&](std::int64_t r) {
      const float largest = from_magnitude(amax_row(rows.row(r), rows.length));
      return OneScale{scale[r] = scale_of(largest)};
    });
  }
  if (!known.scale.empty()) {
    // A piece is still in the cache when it is cast.
    const MatrixRows<T> pieces = pieces_of<T>(x);
    return cast_rows<Grid>(pieces, out, [&](std::int64_t r) {
      if (!known.amax.empty())
        raise(*known.amax.as<float>(), from_magnitude(amax_without_nan(pieces.row(r), pieces.size(r))));
      return OneScale{*scale};
    });
  }
  if (granularity == Granularity::tensor && !options.amax.empty())
    *scale = *options.amax.as<float>();
  else
    amax(ctx, x, granularity, contract, scales, skips_nan(options.rule));
  if (rows_on_ranks) reduce(ctx, options.split, scales);
  if (granularity == Granularity::tensor && !known.amax.empty()) raise(*known.amax.as<float>(), *scale);
  for (std::int64_t i = 0; i < scales.size(); ++i) scale[i] = scale_of(scale[i]);
  if (granularity == Granularity::tensor)
    return cast_rows<Grid>(pieces_of<T>(x), out, [&](std::int64_t) { return OneScale{*scale}; });
  if (contract == ContractionAxis::last)
    return cast_rows<Grid>(rows, out, [&](std::int64_t r) { return OneScale{scale[r]}; });
  return cast_rows<Grid>(rows, out, [&](std::int64_t) -> const float* { return scale; });
}

// The transpose: the same memory for the GEMM that contracts the other dimension of the transposed source.
Quantized transposed(Quantized q) {
  q.codes = q.codes.transposed();
  q.contract = flipped(q.contract);
  for (View* scale : {&q.scale, &q.inverse_scale})
    if (scale->rank == 2) *scale = scale->transposed();
  return q;
}

// Elements of one row that share a scale, and those of one column; scales along both dimensions of a matrix.
struct ScaleGrid {
  std::int64_t along, down;         // elements; 0: all
  std::int64_t stride_c, stride_r;  // between scales
};

ScaleGrid scale_grid(const Quantized& q) {
  const bool last = q.contract == ContractionAxis::last;
  if (q.granularity == Granularity::tensor) return {0, 0, 0, 0};
  if (q.granularity == Granularity::row) return last ? ScaleGrid{0, 1, 0, 1} : ScaleGrid{1, 0, 1, 0};
  const BlockExtent block = block_extent(q.granularity);
  return {last ? block.along : block.across, last ? block.across : block.along, q.scale.stride[1], q.scale.stride[0]};
}

// Row r of codes divided by their scales.
void dequantize_row(const Bf16* from, const float* scale, const ScaleGrid& grid, std::int64_t cols, float* to) {
  if (grid.along == 1 && grid.stride_c == 1) {
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) to[c] = dtype::to_float(from[c]) / scale[c];
    return;
  }
  const std::int64_t step = grid.along == 0 ? cols : grid.along;
  for (std::int64_t begin = 0, b = 0; begin < cols; begin += step, ++b) {
    const float by = scale[b * grid.stride_c];
    const std::int64_t end = std::min(cols, begin + step);
#pragma omp simd
    for (std::int64_t c = begin; c < end; ++c) to[c] = dtype::to_float(from[c]) / by;
  }
}

// Row r of codes multiplied by one factor.
void multiply_row(const Bf16* from, float by, std::int64_t cols, float* to) {
#pragma omp simd
  for (std::int64_t c = 0; c < cols; ++c) to[c] = dtype::to_float(from[c]) * by;
}

// Row-major codes divided by their scales.
View dequantize_rows(const Context& ctx, const Quantized& q) {
  const std::int64_t rows = q.codes.shape[0], cols = q.codes.shape[1];
  const View out = tensor::allocate(ctx, DType::f32, {rows, cols}, "scratch");
  const device::Timer timer(ctx, device::Work::cast, "dequantize", tensor::bytes_of(q.codes, out),
                            flops_of(q.codes, 1));
  if (ctx.dry) return out;
  const ScaleGrid grid = is_fp4(q.format) ? ScaleGrid{} : scale_grid(q);
#pragma omp parallel for if (q.codes.size() >= kParallelElements)
  for (std::int64_t r = 0; r < rows; ++r) {
    const Bf16* const from = q.codes.as<Bf16>() + r * q.codes.stride[0];
    float* const to = out.as<float>() + r * cols;
    const std::int64_t down = grid.down == 0 ? 0 : r / grid.down;
    if (is_fp4(q.format))
      multiply_row(from, *q.inverse_scale.as<float>() / dtype::kFp4Range, cols, to);
    else if (q.folded)
      dtype::convert(std::span(from, static_cast<std::size_t>(cols)), std::span(to, static_cast<std::size_t>(cols)));
    else
      dequantize_row(from, q.scale.as<float>() + down * grid.stride_r, grid, cols, to);
  }
  return out;
}

// Throws Error if a known scale or amax does not fit the cast.
void require_known(const Context& ctx, const Cast& cast, const CastOptions& options) {
  const KnownScale& known = options.known;
  if (!options.amax.empty()) require_device(ctx, options.amax, "quantize");
  if (options.amax.size() > 1) throw Error("quantize: a known amax is one number for a whole tensor");
  if (known.scale.empty() || !cast.fp8()) return;
  if (cast.granularity != Granularity::tensor || known.scale.size() != 1 || known.inverse_scale.size() != 1 ||
      (!known.amax.empty() && known.amax.size() != 1))
    throw Error("quantize: a known scale is one number for a whole tensor");
}

// Whether codes for the GEMM that contracts the first dimension can be kept.
bool can_keep(const Context& ctx, const Cast& cast, bool emulate) {
  const bool emulated = on_device(ctx) && (emulate || cast.granularity == Granularity::block1x32);
  return cast.fp8() && !is_fp4(cast.format) && !emulated;
}

// x has unit column stride; a result with Granularity::none stays empty.
QuantizedPair cast_on_device(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options,
                             device::PooledMemory* keep = nullptr) {
  for (const Cast& cast : {casts.last, casts.first})
    if (cast.fp8()) dtype::max_of(cast.format);  // throws unless FP8
  if (!casts.last.fp8() && !casts.first.fp8()) return {};
  const device::Timer timer(ctx, span_of_cast(x, casts, options));
  return ctx.dry ? plan_pair(ctx, x, casts, options, keep) : cuda::quantize(ctx, x, casts, options, keep);
}

QuantizedPair quantize_both_on_device(const Context& ctx, const View& x, const CastPair& casts,
                                      const CastOptions& options) {
  if (!unit_columns(x)) {
    CastOptions of_transposed = options;
    of_transposed.split = flipped(options.split);
    const QuantizedPair pair =
        quantize_both_on_device(ctx, x.transposed(), {.last = casts.first, .first = casts.last}, of_transposed);
    return {.last = transposed(pair.first), .first = transposed(pair.last)};
  }
  QuantizedPair pair = cast_on_device(ctx, x, casts, options);
  if (!casts.last.fp8()) pair.last = high_precision(x, ContractionAxis::last);
  if (!casts.first.fp8()) pair.first = high_precision(x, ContractionAxis::first);
  return pair;
}

// quantize() to FP8 on the host of x with unit column stride; memory from `keep`, or if that is null, from the arena.
// `options` are those of with_whole_amax() and options_of_cast().
Quantized cast_on_host(const Context& ctx, const View& x, const Cast& cast, ContractionAxis contract,
                       const CastOptions& options, device::PooledMemory* keep) {
  const bool blocks = block_extent(cast.granularity).along > 0,
             straddles = blocks && covers_ranks(cast, contract, options.split);
  const std::int64_t count =
      cast.granularity == Granularity::tensor ? 1 : x.shape[contract == ContractionAxis::last ? 0 : 1];
  const bool known = !options.known.scale.empty();
  const auto scales = [&] {
    return blocks ? allocate_block_scales(ctx, x.shape[0], x.shape[1], cast.granularity, contract, keep)
                  : allocate_for_cast(ctx, keep, DType::f32, {count});
  };
  Quantized q{.codes = allocate_for_cast(ctx, keep, DType::bf16, {x.shape[0], x.shape[1]}),
              .format = cast.format,
              .granularity = cast.granularity,
              .contract = contract,
              .scale = known       ? options.known.scale
                       : straddles ? View{}
                                   : scales(),
              .inverse_scale = known       ? options.known.inverse_scale
                               : straddles ? View{}
                                           : scales()};
  const device::Timer timer(ctx, device::Work::cast, "quantize", bytes_to_quantize(x), flops_of(x, 2));
  CastCounts counts;
  if (straddles)
    counts = cast_straddling(ctx, x, q, options, keep);
  else if (blocks && !ctx.dry)
    counts = cast_blocks(x, q, options);
  if (ctx.dry && !known) reduce_amaxes(ctx, q, options, q.scale);
  q.folded = q.folded || (device::planned(ctx) && blocks && folds(q, options));
  dtype::with_fp8_grid(cast.format, [&]<class Grid>() {
    if (ctx.dry || blocks) return;
    dtype::with_float_type(x.dtype, "quantize", [&]<class T>() {
      counts = cast_bf16<Grid, T>(ctx, x, cast.granularity, contract, options, q.scale, q.codes.as<Bf16>());
    });
    for (std::int64_t i = 0; i < count && !known; ++i) q.inverse_scale.as<float>()[i] = 1.0f / q.scale.as<float>()[i];
  });
  if (options.counts != nullptr) *options.counts += counts;
  return q;
}

}  // namespace

CastCounts& CastCounts::operator+=(const CastCounts& o) {
  elements += o.elements;
  saturated += o.saturated;
  underflowed += o.underflowed;
  return *this;
}

Quantized quantize(const Context& ctx, const View& x, const Cast& cast, ContractionAxis contract,
                   const CastOptions& of_part) {
  require_matrix(ctx, x, "quantize");
  require_known(ctx, cast, of_part);
  require_split(ctx, cast, contract, of_part);
  if (!cast.fp8()) return high_precision(x, contract);
  if (is_fp4(cast.format)) return quantize_fp4(ctx, x, cast, contract, of_part);
  CastOptions options = with_whole_amax(ctx, x, {.last = cast, .first = {}}, options_of_cast(of_part));
  if (!unit_columns(x)) {
    options.split = flipped(options.split);
    return transposed(quantize(ctx, x.transposed(), cast, flipped(contract), options));
  }
  if (on_device(ctx))
    return contract == ContractionAxis::last ? cast_on_device(ctx, x, {.last = cast, .first = {}}, options).last
                                             : cast_on_device(ctx, x, {.last = {}, .first = cast}, options).first;
  return cast_on_host(ctx, x, cast, contract, options, nullptr);
}

QuantizedPair quantize_both(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& of_part) {
  const CastOptions options = with_whole_amax(ctx, x, casts, of_part);
  if (on_device(ctx)) {
    require_matrix(ctx, x, "quantize_both");
    for (const Cast& cast : {casts.last, casts.first}) require_known(ctx, cast, options);
    require_split(ctx, casts.last, ContractionAxis::last, options);
    require_split(ctx, casts.first, ContractionAxis::first, options);
    if (is_fp4(casts.last.format) || is_fp4(casts.first.format)) return plan_fp4(ctx, x, casts, options);
    return quantize_both_on_device(ctx, x, casts, options);
  }
  QuantizedPair pair;
  pair.last = quantize(ctx, x, casts.last, ContractionAxis::last, options);
  CastOptions of_first = options;
  if (casts.last.fp8()) of_first.known.amax = {};  // recorded by the first cast
  pair.first = casts.shared() ? pair.last : quantize(ctx, x, casts.first, ContractionAxis::first, of_first);
  pair.first.contract = ContractionAxis::first;
  return pair;
}

bool saves_memory(const Context& ctx, const View& x, const Cast& cast, bool emulate) {
  if (!can_keep(ctx, cast, emulate)) return false;
  const std::int64_t rows = x.shape[0], columns = x.shape[1], along = block_extent(cast.granularity).along;
  const std::int64_t codes = columns * (on_device(ctx) ? round_up(rows, kCodeStride) : rows * 2);
  const std::int64_t scales = cast.granularity == Granularity::tensor ? 1
                              : along == 0                            ? columns
                                                                      : divide_up(rows, along) * columns;
  return static_cast<std::size_t>(codes + scales * 8) < x.bytes();
}

QuantizedPair quantize_keeping(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& of_part,
                               device::PooledMemory& keep) {
  require_matrix(ctx, x, "quantize_keeping");
  for (const Cast& cast : {casts.last, casts.first}) require_known(ctx, cast, of_part);
  require_split(ctx, casts.last, ContractionAxis::last, of_part);
  require_split(ctx, casts.first, ContractionAxis::first, of_part);
  if (!can_keep(ctx, casts.first, of_part.emulate) || !casts.last.fp8() || is_fp4(casts.last.format) ||
      !unit_columns(x))
    throw Error("quantize_keeping: codes of these casts cannot be kept");
  CastOptions options = with_whole_amax(ctx, x, casts, options_of_cast(of_part));
  if (on_device(ctx)) return cast_on_device(ctx, x, casts, options, &keep);
  CastCounts counted;
  const bool once = casts.shared();
  if (once && options.counts != nullptr) options.counts = &counted;
  QuantizedPair pair;
  pair.last = cast_on_host(ctx, x, casts.last, ContractionAxis::last, options, once ? &keep : nullptr);
  if (options.counts == &counted)
    for (int cast = 0; cast < 2; ++cast) *of_part.counts += counted;
  options.known.amax = {};  // recorded by the first cast
  pair.first = once ? pair.last : cast_on_host(ctx, x, casts.first, ContractionAxis::first, options, &keep);
  pair.first.contract = ContractionAxis::first;
  return pair;
}

void scales_from_amax(const Context& ctx, const View& amax, const ScaleOptions& options, const View& scales,
                      const View& inverse_scales) {
  for (const View& v : {amax, scales, inverse_scales}) {
    require_device(ctx, v, "scales_from_amax");
    if (!v.contiguous() || v.size() != amax.size()) throw Error("scales_from_amax: amaxes and scales differ in number");
  }
  const float max = dtype::max_of(options.format);
  const device::Timer timer(ctx, device::Work::cast, "scales", 3 * tensor::bytes_of(amax));
  if (ctx.dry) return;
  if (on_device(ctx)) return cuda::scales_from_amax(ctx, amax, options, scales, inverse_scales);
  for (std::int64_t i = 0; i < amax.size(); ++i) {
    const float scale = scale_by_rule(options.rule, amax.as<float>()[i], max, options.power_of_2);
    scales.as<float>()[i] = scale;
    inverse_scales.as<float>()[i] = 1.0f / scale;
  }
}

void cast_to_bytes(const Context& ctx, const View& x, dtype::DType format, const float* scale, const View& codes,
                   CastCounts* counts) {
  require_matrix(ctx, x, "cast_to_bytes");
  if (codes.rank != 2 || codes.shape[0] != x.shape[0] || codes.shape[1] != x.shape[1] || !codes.contiguous())
    throw Error("cast_to_bytes: codes are not contiguous or differ from the matrix in shape");
  require_device(ctx, codes, "cast_to_bytes");
  const device::Timer timer(ctx, device::Work::cast, "cast to bytes", tensor::bytes_of(x, codes), flops_of(x, 1));
  if (on_device(ctx)) {
    dtype::max_of(format);  // throws unless FP8
    if (!unit_columns(x)) throw Error("cast_to_bytes: on a GPU rows must have unit stride");
    if (ctx.dry) return;
    return cuda::cast_to_bytes(ctx, x, format, scale, codes, counts);
  }
  CastCounts done;
  dtype::with_fp8_grid(format, [&]<class Grid>() {
    if (ctx.dry) return;
    dtype::with_float_type(x.dtype, "cast_to_bytes", [&]<class T>() {
      auto* const out = codes.as<std::uint8_t>();
      done = unit_columns(x) ? cast_rows<Grid>(pieces_of<T>(x), out, [&](std::int64_t) { return OneScale{*scale}; })
                             : cast_column_major<Grid, T>(x, OneScale{*scale}, out);
    });
  });
  if (counts != nullptr) *counts += done;
}

Quantized from_bytes(const Context& ctx, const View& codes, dtype::DType format, ContractionAxis contract,
                     const View& scale, const View& inverse_scale, bool emulate) {
  require_device(ctx, codes, "from_bytes");
  if (codes.rank != 2 || !codes.contiguous()) throw Error("from_bytes: codes are not a contiguous matrix");
  const bool blocks = scale.rank == 2;
  const std::int64_t lines = codes.shape[contract == ContractionAxis::last ? 0 : 1];
  const bool by_line = !blocks && scale.size() == lines && scale.size() > 1;
  if ((!by_line && !blocks && scale.size() != 1) || inverse_scale.size() != scale.size())
    throw Error("from_bytes: expected one scale and one inverse scale, or one for each row, column or block");
  if (blocks &&
      (scale.shape[0] != divide_up(codes.shape[0], kSquare) || scale.shape[1] != divide_up(codes.shape[1], kSquare)))
    throw Error("from_bytes: the scales are not those of blocks of 128 x 128");
  if (blocks && emulate && on_device(ctx)) throw Error("from_bytes: codes in blocks cannot be emulated on a GPU");
  dtype::max_of(format);  // throws unless FP8
  const bool device = on_device(ctx);
  const bool repacks = device && !is_laid_out(codes, contract), upcasts = !device || emulate;
  const device::Timer timer(ctx, device::Work::cast, "decode",
                            ((repacks ? 2 : 0) + (upcasts ? 3 : 0)) * tensor::bytes_of(codes), 0,
                            (repacks ? 1 : 0) + (upcasts ? 1 : 0));
  Quantized q{.codes = device ? repack(ctx, codes, contract)
                              : tensor::allocate(ctx, DType::bf16, {codes.shape[0], codes.shape[1]}, kCategory),
              .format = format,
              .granularity = blocks    ? Granularity::block128x128
                             : by_line ? Granularity::row
                                       : Granularity::tensor,
              .contract = contract,
              .scale = scale,
              .inverse_scale = inverse_scale};
  if (device && emulate) q.codes = upcast(ctx, q.codes, format);
  if (ctx.dry || device) return q;
  constexpr std::int64_t kPiece = 16384;
  const auto* const from = codes.as<std::uint8_t>();
  auto* const to = q.codes.as<Bf16>();
  const std::int64_t total = codes.size();
#pragma omp parallel for if (total > kPiece)
  for (std::int64_t begin = 0; begin < total; begin += kPiece) {
    const auto n = static_cast<std::size_t>(std::min(kPiece, total - begin));
    dtype::decode_fp8(format, {from + begin, n}, std::span<Bf16>(to + begin, n));
  }
  return q;
}

View dequantize(const Context& ctx, const Quantized& q) {
  require_matrix(ctx, q.codes, "dequantize");
  if (on_device(ctx)) throw Error("dequantize: not available on a GPU");
  return unit_columns(q.codes) ? dequantize_rows(ctx, q) : dequantize_rows(ctx, transposed(q)).transposed();
}

}  // namespace fp8::quant
