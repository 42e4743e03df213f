/// Casts one matrix to FP8 or FP4 codes and back, in pieces of rows that the caller reads and writes; no file access
/// here.
///
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8/dtype/dtype.h"
#include "fp8/dtype/e2m1.h"
#include "fp8/model/output.h"
#include "fp8/quant/quantize.h"

namespace fp8::convert {

using model::for_pieces;

/// Reads rows [begin, end) as stored into `out` of exactly their bytes.
using ReadRows = std::function<void(std::int64_t begin, std::int64_t end, std::span<std::byte> out)>;
/// Writes the next bytes in storage order.
using WriteBytes = std::function<void(std::span<const std::byte> bytes)>;

/// A matrix that is read piece by piece.
struct StoredMatrix {
  std::string name;                        ///< path and dataset, for errors
  std::int64_t rows = 0;                   ///< first extent, [out]
  std::int64_t cols = 0;                   ///< second extent, [in]
  dtype::DType dtype = dtype::DType::f32;  ///< f32 or bf16; e4m3, e5m2 or e2m1 for codes
  ReadRows read;                           ///< reads its rows

  /// Bytes of `n` rows.
  std::size_t bytes_of(std::int64_t n) const {
    return static_cast<std::size_t>(n * cols / dtype::packed(dtype)) * dtype::size_of(dtype);
  }
};

/// Calls visit(first row, number of rows, their bytes) for pieces that cover the matrix; visit may modify the bytes.
/// Pieces begin at multiples of `together` rows.
template <class Visit>
void for_pieces(const StoredMatrix& m, const Visit& visit, std::int64_t together = 1) {
  std::vector<std::byte> bytes;
  for_pieces(
      m.rows, m.cols,
      [&](std::int64_t begin, std::int64_t end) {
        bytes.resize(m.bytes_of(end - begin));
        m.read(begin, end, bytes);
        visit(begin, end - begin, std::span(bytes));
      },
      together);
}

/// How a matrix is cast.
struct CastRule {
  dtype::DType format = dtype::DType::e4m3;                 ///< e4m3 or e5m2; e2m1 for block16x16
  quant::Granularity scaling = quant::Granularity::tensor;  ///< tensor, row, block128x128, block1x32, or block16x16
  bool power_of_2 = false;                                  ///< scales rounded down to powers of two; block1x32 always
  std::optional<float> amax{};                              ///< block16x16: an amax of at least that of the matrix
  bool losses = true;                                       ///< compute signal and noise of the result
};

/// A grid [rows, cols] of factors: the code (r, c) is multiplied by the factor [r / down, c / along].
struct FactorGrid {
  std::int64_t rows, cols;   ///< number of factors in each dimension
  std::int64_t down, along;  ///< codes that share a factor in each dimension
};

/// The factors of a weight [rows, cols]: one (tensor), one per row, or one per block, see quant::block_extent().
FactorGrid factor_grid(quant::Granularity scaling, std::int64_t rows, std::int64_t cols);

/// The format in which scales of this granularity are stored: f32, e8m0 (block1x32), or e4m3 (block16x16, block1x16).
dtype::DType scale_type(quant::Granularity scaling);

/// The extents in which the scales of a weight [rows, cols] are stored.
std::vector<std::int64_t> scales_shape(quant::Granularity scaling, std::int64_t rows, std::int64_t cols);

/// The granularity of scales that are stored in this format with these extents, for a weight with the extents
/// `weight` in elements; nothing if the extents are those of no granularity.
std::optional<quant::Granularity> find_granularity(dtype::DType type, const std::vector<std::int64_t>& scales,
                                                   const std::vector<std::int64_t>& weight);

/// The factors of such scales.
std::optional<FactorGrid> find_grid(dtype::DType type, const std::vector<std::int64_t>& scales,
                                    const std::vector<std::int64_t>& weight);

/// Multiplies the values of rows of `cols` elements, from row `first` on, by their factors, a grid by rows. Throws
/// Error `name: row N ...` when a product is not finite.
void multiply_rows(const std::string& name, std::span<float> values, std::int64_t first, std::int64_t cols,
                   std::span<const float> factors, const FactorGrid& grid);

/// Least amax above 0 of stored FP4 codes, 2688 x 2^-128: the scale of the tensor, 2688 / amax, is the largest float,
/// and for a smaller amax it would be the same, so that codes x scales x amax would differ from codes x scales / scale.
inline constexpr float kLeastFp4Amax = 0x1.5p-117F;

/// Scales of codes as a checkpoint stores them.
struct StoredScales {
  dtype::DType dtype = dtype::DType::f32;  ///< see scale_type()
  std::vector<std::int64_t> shape{};       ///< see scales_shape()
  std::vector<std::byte> bytes{};          ///< the scales by rows
  float amax = 0;                          ///< e4m3: the amax of the tensor, which gives its scale, dtype::fp4_scale()

  /// What codes are multiplied by, a factor_grid() by rows: the scales, of e4m3 over that of the tensor. Throws Error
  /// `name: reason` for a scale that dtype::bad_scale() names, and for an amax that is not finite or negative.
  std::vector<float> factors(const std::string& name, dtype::DType codes) const;
};

/// Results of a cast besides the codes.
struct CastResult {
  StoredScales scales;                ///< scales to store
  std::vector<float> inverse_scales;  ///< factors of the codes, a factor_grid() by rows
  quant::CastCounts counts;           ///< counts of all elements
  double signal = 0;                  ///< sum of x^2; 0 without losses
  double noise = 0;                   ///< sum of (x - code times inverse scale)^2
};

/// The largest magnitude of the matrix. Throws Error that names the matrix when an element is not finite.
float amax_of(const StoredMatrix& x);

/// Reads the matrix twice, in pieces, and passes its codes to `write` in the second pass; for the blocks of
/// block128x128 and block1x32, whose amaxes are those of a piece, and under the amax of the rule, only once. Codes of
/// block16x16 are packed. Throws Error that names the matrix when an element is not finite. Deterministic, independent
/// of the number of threads.
CastResult cast_matrix(const StoredMatrix& x, const CastRule& rule, const WriteBytes& write);

/// Stores `values`, the elements of rows from `first` on, in the format `type`, f32 or bf16, at `out` (host memory, any
/// alignment). Throws Error that begins with `name` and names the row in which a finite value is infinite as bf16.
void store_rows(const std::string& name, std::span<const float> values, std::int64_t first, std::int64_t cols,
                dtype::DType type, std::span<std::byte> out);

/// Passes codes times `factors`, a grid by rows, multiplied in f32 and rounded to `type` (f32 or bf16), to `write`.
/// Throws Error that names the matrix when a result is not finite.
void uncast_matrix(const StoredMatrix& codes, std::span<const float> factors, const FactorGrid& grid, dtype::DType type,
                   const WriteBytes& write);

}  // namespace fp8::convert
