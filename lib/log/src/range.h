/// The extent of a picture, shared by both kinds of plots.
#pragma once

#include "fp8/log/plot.h"

namespace fp8::log {

/// Least and greatest x and y of all finite points; y is widened when it is a single value.
struct Range {
  double x0 = 0;  ///< least x
  double x1 = 1;  ///< greatest x, above x0
  double y0 = 0;  ///< least y
  double y1 = 1;  ///< greatest y, above y0
};

/// The range of a picture; unit ranges when nothing is finite.
Range range_of(const Picture& picture);

}  // namespace fp8::log
