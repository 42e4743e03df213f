/// What the loops of this crate need of a view: rows of one element type with unit stride. Private to this crate.
#pragma once

#include <cstdint>
#include <string>

#include "cast_row.h"
#include "fp8/base/error.h"
#include "fp8/quant/quantize.h"

namespace fp8::quant {

/// Below this many elements a loop stays on one thread.
constexpr std::int64_t kParallelElements = 1 << 14;

/// Whether elements along the rows of x are neighbours.
inline bool unit_columns(const View& x) { return x.stride[1] == 1 || x.shape[1] <= 1; }
/// Whether elements along the columns of x are neighbours.
inline bool unit_rows(const View& x) { return x.stride[0] == 1 || x.shape[0] <= 1; }
/// The other direction.
inline ContractionAxis flipped(ContractionAxis c) {
  return c == ContractionAxis::last ? ContractionAxis::first : ContractionAxis::last;
}

/// Whether the work is the CUDA side's.
inline bool on_device(const Context& ctx) { return ctx.device == device::DeviceType::cuda; }

/// Refuses a matrix that lies elsewhere than the context works.
inline void require_device(const Context& ctx, const View& x, const char* what) {
  if (x.device != ctx.device)
    throw Error(std::string(what) + (on_device(ctx) ? ": a matrix in host memory, and the work is on the GPU"
                                                    : ": a matrix in GPU memory, and the work is on the host"));
}

/// Refuses what cannot be cast: another device, another rank than 2, other types than f32 and bf16, no unit stride.
inline void require_matrix(const Context& ctx, const View& x, const char* what) {
  require_device(ctx, x, what);
  if (x.rank != 2) throw Error(std::string(what) + ": a matrix has two dimensions, not " + std::to_string(x.rank));
  if (x.dtype != dtype::DType::f32 && x.dtype != dtype::DType::bf16)
    throw Error(std::string(what) + ": float32 or bfloat16 is cast, not " + std::string(dtype::name_of(x.dtype)));
  if (!unit_columns(x) && !unit_rows(x)) throw Error(std::string(what) + ": neither dimension has unit stride");
}

/// Rows of neighbouring elements. A matrix without gaps may be cut into rows of another length, the last one shorter.
template <class T>
struct MatrixRows {
  const T* data;        ///< first element
  std::int64_t count;   ///< rows
  std::int64_t length;  ///< elements of a row, except perhaps the last
  std::int64_t stride;  ///< elements from one row to the next
  std::int64_t total;   ///< elements of all rows

  /// First element of row r.
  const T* row(std::int64_t r) const { return data + r * stride; }
  /// Elements of row r.
  std::int64_t size(std::int64_t r) const { return r + 1 < count ? length : total - r * length; }
  /// Whether threads are worth starting.
  bool parallel() const { return total >= kParallelElements; }
};

/// The rows of a view with unit column stride.
template <class T>
MatrixRows<T> rows_of(const View& x) {
  return {x.as<T>(), x.shape[0], x.shape[1], x.stride[0], x.shape[0] * x.shape[1]};
}

/// For work where rows have no meaning: pieces of a convenient length where there are no gaps, else the rows.
template <class T>
MatrixRows<T> pieces_of(const View& x) {
  constexpr std::int64_t kPiece = 8192;
  const MatrixRows<T> rows = rows_of<T>(x);
  if (rows.stride != rows.length) return rows;
  return {rows.data, (rows.total + kPiece - 1) / kPiece, kPiece, kPiece, rows.total};
}

/// Casts row r with the scales that scales_of(r) gives, into contiguous codes. Threads share the rows.
template <class Grid, class T, class Out, class ScalesOf>
CastCounts cast_rows(const MatrixRows<T>& rows, Out* out, ScalesOf scales_of) {
  std::int64_t saturated = 0, underflowed = 0;
#pragma omp parallel for reduction(+ : saturated, underflowed) if (rows.parallel())
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const RowCounts counts = cast_row<Grid>(rows.row(r), scales_of(r), out + r * rows.length, rows.size(r));
    saturated += counts.saturated;
    underflowed += counts.underflowed;
  }
  return {.elements = rows.total, .saturated = saturated, .underflowed = underflowed};
}

/// Calls f.template operator()<T>() with the element type of x.
template <class F>
void with_element(const View& x, F f) {
  x.dtype == dtype::DType::f32 ? f.template operator()<float>() : f.template operator()<dtype::Bf16>();
}

/// Calls f.template operator()<Grid>() with the grid of an FP8 format; throws Error for another.
template <class F>
void with_grid(dtype::DType format, F f) {
  if (format == dtype::DType::e4m3)
    f.template operator()<dtype::E4m3Grid>();
  else if (format == dtype::DType::e5m2)
    f.template operator()<dtype::E5m2Grid>();
  else
    throw Error(std::string(dtype::name_of(format)) + ": not an FP8 format");
}

}  // namespace fp8::quant
