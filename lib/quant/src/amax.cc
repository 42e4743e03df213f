// Amaxes of a tensor, of each row or of each column, on the host: maxima of integers, the same in any order.
#include <omp.h>

#include <algorithm>
#include <array>

#include "cuda.h"
#include "fp8/device/profile.h"
#include "fp8/dtype/dispatch.h"
#include "matrix.h"

namespace fp8::quant {
namespace {

template <class T>
float amax_all(const View& x, bool skip_nan) {
  const MatrixRows<T> pieces = pieces_of<T>(x);
  Magnitude<T> largest = 0;
#pragma omp parallel for reduction(max : largest) if (pieces.parallel())
  for (std::int64_t r = 0; r < pieces.count; ++r) {
    const auto of_row = skip_nan ? amax_without_nan<T> : amax_row<T>;
    largest = std::max(largest, of_row(pieces.row(r), pieces.size(r)));
  }
  return from_magnitude(largest);
}

template <class T>
void amax_of_rows(const View& x, float* out) {
  const MatrixRows<T> rows = rows_of<T>(x);
#pragma omp parallel for if (rows.parallel())
  for (std::int64_t r = 0; r < rows.count; ++r) out[r] = from_magnitude(amax_row(rows.row(r), rows.length));
}

// Each thread reads a stripe of columns through all rows, with its maxima in the L1 cache. Stripes are as wide as
// possible with one per thread, because a narrow stripe reads few bytes of each page of memory.
template <class T>
void amax_of_columns(const View& x, float* out) {
  constexpr std::int64_t kLine = 64, kWidest = 2048;
  const MatrixRows<T> rows = rows_of<T>(x);
  const std::int64_t share = rows.length / omp_get_max_threads() / kLine * kLine;
  const std::int64_t stripe = std::clamp(share, kLine, kWidest), stripes = divide_up(rows.length, stripe);
#pragma omp parallel for if (rows.parallel())
  for (std::int64_t s = 0; s < stripes; ++s) {
    const std::int64_t begin = s * stripe, width = std::min(stripe, rows.length - begin);
    std::array<Magnitude<T>, kWidest> largest{};
    for (std::int64_t r = 0; r < rows.count; ++r) amax_into(rows.row(r) + begin, largest.data(), width);
    for (std::int64_t i = 0; i < width; ++i) out[begin + i] = from_magnitude(largest[static_cast<std::size_t>(i)]);
  }
}

}  // namespace

void amax(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract, const View& out,
          bool skip_nan) {
  require_matrix(ctx, x, "amax");
  if (!unit_columns(x)) return amax(ctx, x.transposed(), granularity, flipped(contract), out, skip_nan);
  const bool per_row = contract == ContractionAxis::last;
  const std::int64_t expected = granularity == Granularity::tensor ? 1 : x.shape[per_row ? 0 : 1];
  if (granularity != Granularity::tensor && granularity != Granularity::row)
    throw Error("amax: expected one amax for the matrix or one for each row");
  if (out.size() != expected || !out.contiguous())
    throw Error("amax: the result has " + std::to_string(out.size()) + " elements, not " + std::to_string(expected));
  if (skip_nan && granularity != Granularity::tensor) throw Error("amax: NaN is left out of whole tensors only");
  const device::Timer timer(ctx, device::Work::cast, "amax", tensor::bytes_of(x), static_cast<double>(x.size()), 2);
  if (ctx.dry) return;
  if (on_device(ctx)) return cuda::amax(ctx, x, granularity, contract, out, skip_nan);
  dtype::with_float_type(x.dtype, "amax", [&]<class T>() {
    float* const to = out.as<float>();
    if (granularity == Granularity::tensor)
      *to = amax_all<T>(x, skip_nan);
    else
      per_row ? amax_of_rows<T>(x, to) : amax_of_columns<T>(x, to);
  });
}

void record_amax(const Context& ctx, const View& x, const View& out) {
  require_matrix(ctx, x, "record_amax");
  if (!unit_columns(x)) return record_amax(ctx, x.transposed(), out);
  if (out.size() != 1) throw Error("record_amax: the result is not one number");
  const device::Timer timer(ctx, device::Work::cast, "amax", tensor::bytes_of(x), static_cast<double>(x.size()));
  if (ctx.dry) return;
  if (on_device(ctx)) return cuda::record_amax(ctx, x, out);
  dtype::with_float_type(x.dtype, "amax", [&]<class T>() { raise(*out.as<float>(), amax_all<T>(x, true)); });
}

}  // namespace fp8::quant
