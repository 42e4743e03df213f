/// The gap between two runs as a series.
#pragma once

#include <string>

#include "fp8/log/run.h"

namespace fp8::log {

/// A run whose `metric` is that of B less that of A at the points that compare() matches. Throws as compare() of two
/// runs.
Run gap_of(const Run& a, const Run& b, const std::string& metric);

}  // namespace fp8::log
