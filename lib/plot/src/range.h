/// The ranges of the axes of a plot.
#pragma once

#include "fp8/plot/plot.h"

namespace fp8::plot {

/// Bounds of x over all points and of y over the finite ones; extended when all values are equal.
struct Range {
  double x0 = 0;  ///< minimum of x
  double x1 = 1;  ///< maximum of x, above x0
  double y0 = 0;  ///< minimum of y
  double y1 = 1;  ///< maximum of y, above y0
};

/// Range of the panel of a gap, which contains zero, the mean, the band after the first tenth, before which it is wide,
/// and the gate if it is near.
Range gap_range(const GapPanel& gap);

/// The range of a plot, with the steps behind moving means if `with_steps`; fixed ranges without points.
Range range_of(const Picture& picture, bool with_steps = false);

}  // namespace fp8::plot
