/// Times work on a device.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "fp8/probe/bench.h"

namespace fp8::probe {

/// Median and quartiles; zeros without samples.
Timing timing_of(std::vector<double> samples);

/// Paired timing of two functions; `ratio` is the median over pairs of samples of first / second.
struct PairedTiming {
  Timing first, second;
  double ratio = 0;
};

/// Times both alternately for about `seconds` in total, at least three pairs, after warm-up calls of each. A sample is
/// as many calls as take about 5 ms, including the synchronization of the device.
PairedTiming time_both(const device::Context& ctx, const std::function<void()>& first,
                       const std::function<void()>& second, double seconds);

}  // namespace fp8::probe
