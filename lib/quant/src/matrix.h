/// Checks of matrices, and a view as rows of one element type with unit stride. Private to this crate.
#pragma once

#include <cstdint>
#include <string>

#include "cast_row.h"
#include "fp8/base/error.h"
#include "fp8/base/round.h"
#include "fp8/quant/quantize.h"

namespace fp8::quant {

/// A loop over fewer elements runs on one thread.
constexpr std::int64_t kParallelElements = 1 << 14;

/// Whether the elements of each row of x are adjacent.
inline bool unit_columns(const View& x) { return x.stride[1] == 1 || x.shape[1] <= 1; }
/// Whether the elements of each column of x are adjacent.
inline bool unit_rows(const View& x) { return x.stride[0] == 1 || x.shape[0] <= 1; }
/// The other axis, for the transposed matrix.
inline ContractionAxis flipped(ContractionAxis c) {
  return c == ContractionAxis::last ? ContractionAxis::first : ContractionAxis::last;
}

/// The matrix itself as the operand of the GEMM that contracts `contract`.
inline Quantized high_precision(const View& x, ContractionAxis contract) {
  return {.codes = x, .format = x.dtype, .contract = contract, .scale = {}, .inverse_scale = {}};
}

/// Whether the context is on a CUDA device.
inline bool on_device(const Context& ctx) { return ctx.device == device::DeviceType::cuda; }

/// Uninitialized memory of a cast: from `keep`, or if that is null, from the arena.
inline View allocate_for_cast(const Context& ctx, device::PooledMemory* keep, dtype::DType type, tensor::Shape shape) {
  return keep != nullptr ? tensor::allocate_pooled(ctx, *keep, type, shape, "activation codes")
                         : tensor::allocate(ctx, type, shape, "fp8 codes");
}

/// Throws Error if a matrix is not on the context's device.
inline void require_device(const Context& ctx, const View& x, const char* what) {
  if (x.device != ctx.device)
    throw Error(std::string(what) + (on_device(ctx) ? ": the matrix is in host memory, not on the GPU"
                                                    : ": the matrix is in GPU memory, not on the host"));
}

/// Throws Error unless x can be cast: on the context's device, rank 2, f32 or bf16, one unit stride.
inline void require_matrix(const Context& ctx, const View& x, const char* what) {
  require_device(ctx, x, what);
  if (x.rank != 2)
    throw Error(std::string(what) + ": expected a matrix of 2 dimensions, not " + std::to_string(x.rank));
  if (x.dtype != dtype::DType::f32 && x.dtype != dtype::DType::bf16)
    throw Error(std::string(what) + ": expected float32 or bfloat16, not " + std::string(dtype::name_of(x.dtype)));
  if (!unit_columns(x) && !unit_rows(x)) throw Error(std::string(what) + ": neither dimension has unit stride");
}

/// Rows of adjacent elements. A contiguous matrix may be divided into rows of another length, the last one shorter.
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
  /// Whether to use several threads.
  bool parallel() const { return total >= kParallelElements; }
};

/// The rows of a view with unit column stride.
template <class T>
MatrixRows<T> rows_of(const View& x) {
  return {x.as<T>(), x.shape[0], x.shape[1], x.stride[0], x.shape[0] * x.shape[1]};
}

/// The pieces for loops that do not depend on rows: pieces of equal length if the matrix is contiguous, else its rows.
template <class T>
MatrixRows<T> pieces_of(const View& x) {
  constexpr std::int64_t kElements = 8192;
  const MatrixRows<T> rows = rows_of<T>(x);
  if (rows.stride != rows.length) return rows;
  return {rows.data, divide_up(rows.total, kElements), kElements, kElements, rows.total};
}

/// Casts row r with the scales scales_of(r) to contiguous codes, rows in parallel.
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

}  // namespace fp8::quant
