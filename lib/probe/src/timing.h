/// Times work on a device.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "fp8/probe/bench.h"

namespace fp8::probe {

/// Median and quartiles; zeros without samples.
Timing timing_of(std::vector<double> samples);

/// Median of samples with its 95 % interval from order statistics, which needs six samples. Source: Conover 1971, 3.2.
Ratio ratio_of(std::vector<double> samples);

/// Median of first / second over all pairs of unpaired samples, with the 95 % interval of the rank-sum test, which
/// needs four samples of each. Source: Mann and Whitney 1947, normal approximation with continuity correction.
Ratio ratio_of(const std::vector<double>& first, const std::vector<double>& second);

/// Paired timing of two functions; `ratio` is that of first / second over pairs of samples.
struct PairedTiming {
  Timing first, second;
  Ratio ratio{};
};

/// Times both alternately for about `seconds` in total, at least six pairs, after warm-up calls of each. A sample is
/// as many calls as take about 5 ms, or a twelfth of `seconds` if that is less, including the synchronization of the
/// device.
PairedTiming time_both(const device::Context& ctx, const std::function<void()>& first,
                       const std::function<void()>& second, double seconds);

}  // namespace fp8::probe
