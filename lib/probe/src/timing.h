/// Clocks around work on a device.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "fp8/probe/bench.h"

namespace fp8::probe {

/// Median and quartiles; zeros where there is no sample.
Timing timing_of(std::vector<double> samples);

/// Two ways to do the same, and how much longer the first takes: the median over pairs of samples.
struct Duel {
  Timing first, second;
  double ratio = 0;
};

/// Times both in turn for about `seconds` altogether, three pairs at least, after each has run once. A sample is as
/// many calls as fill some milliseconds, and ends when the device has done them.
Duel time_both(const device::Context& ctx, const std::function<void()>& first, const std::function<void()>& second,
               double seconds);

}  // namespace fp8::probe
