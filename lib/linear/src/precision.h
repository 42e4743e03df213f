/// What the precision of a weight means for the casts of its parts. Private to this crate.
#pragma once

#include <algorithm>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/linear/linear.h"

namespace fp8::linear {

/// Options of a cast of its FP8 parts. Codes are multiplied by the scales of their blocks where the GEMM needs no
/// scales.
inline quant::CastOptions cast_options(const LinearPrecision& precision, const quant::KnownScale& known) {
  quant::CastOptions options = precision.options;
  options.fold = precision.accumulation == gemm::Accumulation::f32;
  options.rule = recipe_of(precision).scale_rule;
  options.known = known;
  return options;
}

/// Whether a GEMM of this part in the pass is FP8.
inline bool fp8_in(const Part& p, Pass pass) {
  return p.fp8 && (pass == Pass::backward ? p.gemms.dgrad || p.gemms.wgrad : p.gemms.forward);
}

/// The casts of dy of a part.
inline quant::CastPair casts_of_dy(const Weight& weight, const Part& part, const Gradients& wanted) {
  const quant::Recipe& recipe = recipe_of(weight.precision);
  const bool dgrad = !wanted.dx.empty() && part.fp8 && part.gemms.dgrad,
             wgrad = !wanted.dw.empty() && part.fp8 && part.gemms.wgrad;
  return {dgrad ? recipe.dgrad.dy : quant::Cast{}, wgrad ? recipe.wgrad.dy : quant::Cast{}};
}

/// Index of the part that begins at row `begin`.
inline std::int64_t index_of(const std::vector<Part>& parts, std::int64_t begin) {
  return std::ranges::find(parts, begin, &Part::begin) - parts.begin();
}

/// The known scale of the part that begins at row `begin`; empty if none is known.
inline quant::KnownScale known_for(const std::vector<quant::KnownScale>& known, const std::vector<Part>& parts,
                                   std::int64_t begin) {
  if (known.empty()) return {};
  return known.at(static_cast<std::size_t>(index_of(parts, begin)));
}

/// The amax of dy in the part that begins at row `begin`; empty if none is known.
inline View amax_of(const View& amaxes, const std::vector<Part>& parts, std::int64_t begin) {
  if (amaxes.empty()) return {};
  const std::int64_t part = index_of(parts, begin);
  if (part >= amaxes.size()) throw Error("linear: fewer amaxes of the gradient than parts");
  return amaxes.rows(part, part + 1);
}

/// The part of x, or of a weight, that this rank has if tensor parallelism divides columns of the weight.
inline quant::Split by_columns(const LinearPrecision& precision) {
  const TensorParallel& tp = precision.tensor_parallel;
  return tp.axis == 1 ? quant::Split{tp.ranks, 1, tp.first_column, tp.columns, tp.straddles} : quant::Split{};
}

/// The part of a projection's weight (axis 0), or of its dy (axis 1), if tensor parallelism divides rows of the weight.
inline quant::Split by_rows(const LinearPrecision& precision, const Part& part, int axis) {
  const TensorParallel& tp = precision.tensor_parallel;
  return tp.axis == 0 ? quant::Split{tp.ranks, axis, part.whole_begin, part.whole_rows, tp.straddles} : quant::Split{};
}

/// The factors of n columns of x and of the weight.
inline View factors_of(const LinearPrecision& precision, std::int64_t n) {
  const TensorParallel& tp = precision.tensor_parallel;
  const std::int64_t first = tp.axis == 1 ? tp.first_column : 0;
  return precision.column_factors.rows(first, first + n);
}

/// Whether the casts of forward are of matrices whose columns were multiplied.
inline bool multiplies_columns(const LinearPrecision& precision, bool backward) {
  return !backward && !precision.column_factors.empty();
}

/// The layout of inverse scales that the engine gets.
inline gemm::ScaleBlocks blocks_of(quant::Granularity granularity) {
  switch (granularity) {
    case quant::Granularity::block1x128:
      return gemm::ScaleBlocks::block1x128;
    case quant::Granularity::block128x128:
      return gemm::ScaleBlocks::block128x128;
    case quant::Granularity::block1x32:
      return gemm::ScaleBlocks::block1x32;
    case quant::Granularity::block1x16:  // codes are multiplied by the scales of their blocks
    case quant::Granularity::block16x16:
    case quant::Granularity::none:
    case quant::Granularity::tensor:
    case quant::Granularity::row:
      break;
  }
  return gemm::ScaleBlocks::none;
}

}  // namespace fp8::linear
