/// Figures of casts to FP8 and FP4, computed from a matrix and the scales of its cast. FP8: each element is multiplied
/// by its scale in f32, saturated and rounded as quant does, and divided by the scale again. FP4: an element times its
/// scale is what was rounded, and the rounded element comes from the cast, which may have been stochastic. On the host.
///   x the matrix, q its codes, y = q / scale
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "fp8/quant/quantize.h"

namespace fp8::statistics {

using device::Context;
using tensor::View;

/// The smallest and the largest of some scales.
struct ScaleRange {
  float min = std::numeric_limits<float>::infinity();  ///< infinite if there is none; NaN if one is NaN
  float max = 0;

  /// Adds other scales.
  void add(const ScaleRange& o);
};

/// Figures of one or more casts. Shares are of the finite elements that are not zero.
struct Figures {
  std::int64_t elements = 0;     ///< all elements
  std::int64_t nonfinite = 0;    ///< NaN or infinite elements, which no other count includes
  std::int64_t nonzero = 0;      ///< finite elements that are not zero
  std::int64_t underflowed = 0;  ///< nonzero elements whose code is zero
  std::int64_t subnormal = 0;    ///< elements whose code is subnormal and not zero
  std::int64_t saturated = 0;    ///< |x * scale| exceeds the largest value by more than half a spacing
  double signal = 0;             ///< sum of x^2
  double noise = 0;              ///< sum of (x - y)^2
  float amax = 0;                ///< largest |x|; NaN if an element is NaN
  float smallest = std::numeric_limits<float>::infinity();  ///< smallest |x| that is not zero
  ScaleRange of_values;     ///< scales of what is not all zero: the smallest is that of the largest |x|
  ScaleRange of_zeros;      ///< scales of what is all zero, which a rule may choose as it likes
  std::int64_t scales = 0;  ///< number of scales
  /// Nonzero elements by the exponent field of |x| in f32: [127 + floor(log2|x|)], [0] for all below 2^-126.
  std::array<std::int64_t, 255> exponents{};
  /// The same of |x * scale|; [254] also for all above.
  std::array<std::int64_t, 255> scaled_exponents{};

  /// Adds the figures of another cast.
  Figures& operator+=(const Figures& o);
  /// The scales of what is not all zero; all scales if everything is zero.
  const ScaleRange& scale_range() const { return amax == 0 ? of_zeros : of_values; }
  /// count / nonzero; 0 if no element is.
  double share(std::int64_t count) const;
  /// 10 log10(signal / noise): infinite for noise 0, NaN if neither is positive.
  double sqnr_db() const;
  /// log2(amax / smallest); 0 if every element is zero.
  double dynamic_range() const;
};

/// Figures of a group of elements: the elements of one scale, or, under one scale for the tensor, the elements of one
/// index of the dimension that its GEMM does not contract.
struct GroupFigures {
  std::int64_t nonzero = 0, underflowed = 0, saturated = 0;  ///< counts, as in Figures
  double signal = 0, noise = 0;                              ///< sums of squares, as in Figures
  float amax = 0;                                            ///< largest finite |x|

  /// Adds the figures of other elements of the group.
  GroupFigures& operator+=(const GroupFigures& o);
};

/// Groups of a matrix, in row-major order.
struct GroupGrid {
  std::vector<GroupFigures> groups;
  std::int64_t across = 0;  ///< groups in a row of groups
};

/// Which part of a matrix a second part is, relative to a first.
enum class PartJoin : std::int8_t {
  rows,     ///< its rows follow those of the first part
  columns,  ///< its columns follow those of the first part
  inside,   ///< it has other elements of the same groups
};

/// Adds the groups of a part to those of the parts before it; either may be without groups. Throws Error where numbers
/// of groups do not fit together.
void join(GroupGrid& before, const GroupGrid& part, PartJoin how);

/// Scales of a matrix on the host: element (r, c) has data[r / rows * stride_r + c / cols * stride_c].
struct ScaleGrid {
  std::vector<float> data;
  std::int64_t rows = 1, cols = 1;  ///< elements that share a scale
  std::int64_t stride_r = 0, stride_c = 0;
  std::int64_t count = 1;  ///< number of scales
};

/// The scales of `q`, copied to the host; not of e2m1.
ScaleGrid scales_of(const Context& ctx, const quant::Quantized& q);

/// quant::fp4_multipliers() of `q`, the cast of x to e2m1.
ScaleGrid fp4_scales_of(const Context& ctx, const quant::Quantized& q, const View& x);

/// One scale for each column of a matrix with `rows` rows.
ScaleGrid column_scales(std::vector<float> scales, std::int64_t rows);

/// A matrix on the host: `x` itself, or a copy of it in `memory`, with unit column stride. `x` is on the context's
/// device.
View on_host(const Context& ctx, const View& x, std::vector<std::byte>& memory);

/// What the cast of a matrix is measured from.
struct MeasuredCast {
  View x;                                    ///< [rows, cols], f32 or bf16 with unit column stride
  const ScaleGrid& scales;                   ///< its scales
  dtype::DType format = dtype::DType::e4m3;  ///< e4m3, e5m2 or e2m1
  View y{};                                  ///< f32 [rows, cols] without gaps, with e2m1 only
};

/// Figures of a cast. The bits do not depend on the number of threads.
Figures measure(const MeasuredCast& cast);

/// Figures by group; `contract` is the dimension that the GEMM contracts.
GroupGrid measure_groups(const MeasuredCast& cast, quant::ContractionAxis contract);

}  // namespace fp8::statistics
