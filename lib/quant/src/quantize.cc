// Casts of whole matrices on the host: scales from amaxes, then one pass over the rows. Threads share rows, and what
// they count are integers: nothing depends on how many there are.
#include "fp8/quant/quantize.h"

#include <algorithm>
#include <array>

#include "fp8/dtype/convert.h"
#include "fp8/quant/scale.h"
#include "matrix.h"

namespace fp8::quant {
namespace {

using dtype::DType;

constexpr std::string_view kCategory = "fp8 codes";

// Casts a matrix whose columns, not rows, have neighbouring elements, into row-major codes: pieces of a row are
// collected first.
template <class Grid, class T>
CastCounts cast_across(const View& x, OneScale scale, std::uint8_t* out) {
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

// Codes of x [rows, cols] into `out`, their scales into `scales`: one, one per row, or one per column.
template <class Grid, class T>
CastCounts cast_wide(const Context& ctx, const View& x, Granularity granularity, Contract contract, bool power_of_2,
                     const View& scales, Bf16* out) {
  auto* const scale = scales.as<float>();
  const Rows<T> rows = rows_of<T>(x);
  if (granularity == Granularity::vector && contract == Contract::columns) {
    // A row is still in the nearest cache when it is cast.
    return cast_rows<Grid>(rows, out, [&](std::int64_t r) {
      const float largest = from_magnitude(amax_row(rows.row(r), rows.length));
      return OneScale{scale[r] = scale_from_amax(largest, Grid::kMax, power_of_2)};
    });
  }
  amax(ctx, x, granularity, contract, scales);
  for (std::int64_t i = 0; i < scales.size(); ++i) scale[i] = scale_from_amax(scale[i], Grid::kMax, power_of_2);
  if (granularity == Granularity::tensor)
    return cast_rows<Grid>(pieces_of<T>(x), out, [&](std::int64_t) { return OneScale{*scale}; });
  return cast_rows<Grid>(rows, out, [&](std::int64_t) -> const float* { return scale; });
}

// Row-major codes over a scale for each row, or else one for each column or one in all.
View dequantize_rows(const Context& ctx, const Quantized& q, const View& codes, bool by_row) {
  const std::int64_t rows = codes.shape[0], cols = codes.shape[1];
  const View out = tensor::take(ctx, DType::f32, {rows, cols}, "scratch");
  if (ctx.dry) return out;
  const float* const scale = q.scale.as<float>();
  const bool one = q.granularity == Granularity::tensor;
#pragma omp parallel for if (codes.size() >= kParallelElements)
  for (std::int64_t r = 0; r < rows; ++r) {
    const Bf16* const from = codes.as<Bf16>() + r * codes.stride[0];
    float* const to = out.as<float>() + r * cols;
    for (std::int64_t c = 0; c < cols; ++c) to[c] = dtype::to_float(from[c]) / scale[one ? 0 : by_row ? r : c];
  }
  return out;
}

}  // namespace

CastCounts& CastCounts::operator+=(const CastCounts& o) {
  elements += o.elements;
  saturated += o.saturated;
  underflowed += o.underflowed;
  return *this;
}

Quantized quantize(const Context& ctx, const View& x, const Cast& cast, Contract contract, const Options& options) {
  require_matrix(ctx, x, "quantize");
  if (cast.granularity == Granularity::none)
    return {.codes = x, .format = x.dtype, .contract = contract, .scale = {}, .inverse_scale = {}};
  if (!unit_columns(x)) {
    Quantized q = quantize(ctx, x.transposed(), cast, flipped(contract), options);
    q.codes = q.codes.transposed();
    q.contract = contract;
    return q;
  }
  const std::int64_t count =
      cast.granularity == Granularity::tensor ? 1 : x.shape[contract == Contract::columns ? 0 : 1];
  Quantized q{.codes = tensor::take(ctx, DType::bf16, {x.shape[0], x.shape[1]}, kCategory),
              .format = cast.format,
              .granularity = cast.granularity,
              .contract = contract,
              .scale = tensor::take(ctx, DType::f32, {count}, kCategory),
              .inverse_scale = tensor::take(ctx, DType::f32, {count}, kCategory)};
  CastCounts counts;
  with_grid(cast.format, [&]<class Grid>() {
    if (ctx.dry) return;
    with_element(x, [&]<class T>() {
      counts = cast_wide<Grid, T>(ctx, x, cast.granularity, contract, options.power_of_2, q.scale, q.codes.as<Bf16>());
    });
    for (std::int64_t i = 0; i < count; ++i) q.inverse_scale.as<float>()[i] = 1.0f / q.scale.as<float>()[i];
  });
  if (options.counts != nullptr) *options.counts += counts;
  return q;
}

void cast_to_bytes(const Context& ctx, const View& x, dtype::DType format, const float* scale, const View& codes,
                   CastCounts* counts) {
  require_matrix(ctx, x, "cast_to_bytes");
  if (codes.rank != 2 || codes.shape[0] != x.shape[0] || codes.shape[1] != x.shape[1] || !codes.contiguous())
    throw Error("cast_to_bytes: codes are not contiguous or not of the shape of what is cast");
  CastCounts done;
  with_grid(format, [&]<class Grid>() {
    if (ctx.dry) return;
    with_element(x, [&]<class T>() {
      auto* const out = codes.as<std::uint8_t>();
      done = unit_columns(x) ? cast_rows<Grid>(pieces_of<T>(x), out, [&](std::int64_t) { return OneScale{*scale}; })
                             : cast_across<Grid, T>(x, OneScale{*scale}, out);
    });
  });
  if (counts != nullptr) *counts += done;
}

Quantized from_bytes(const Context& ctx, const View& codes, dtype::DType format, const View& scale,
                     const View& inverse_scale) {
  if (ctx.place != device::Place::host || codes.place != device::Place::host) throw Error("this build has no CUDA");
  if (codes.rank != 2 || !codes.contiguous()) throw Error("from_bytes: codes are not a contiguous matrix");
  if (scale.size() != 1 || inverse_scale.size() != 1) throw Error("from_bytes: not one scale and one inverse scale");
  dtype::max_of(format);  // refuses what is not FP8
  Quantized q{.codes = tensor::take(ctx, DType::bf16, {codes.shape[0], codes.shape[1]}, kCategory),
              .format = format,
              .granularity = Granularity::tensor,
              .contract = Contract::columns,
              .scale = scale,
              .inverse_scale = inverse_scale};
  if (ctx.dry) return q;
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
  const bool by_row = q.granularity == Granularity::vector && q.contract == Contract::columns;
  if (unit_columns(q.codes)) return dequantize_rows(ctx, q, q.codes, by_row);
  const bool by_column = q.granularity == Granularity::vector && !by_row;
  return dequantize_rows(ctx, q, q.codes.transposed(), by_column).transposed();
}

}  // namespace fp8::quant
