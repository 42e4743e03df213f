/// The data of plots: a metric of runs, the two sides of a comparison.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fp8/log/run.h"
#include "fp8/plot/plot.h"

namespace fp8::log {

/// Metric name for the losses of evaluations: "eval_loss".
inline constexpr std::string_view kEvalLoss = "eval_loss";

/// Throws Error listing the available metrics unless some run has values of `metric`, a field of step records or
/// kEvalLoss.
void check_metric(std::span<const Run> runs, const std::string& metric);

/// The curves of `metric`, for the runs that have it. The runs must have been read with `metric`. Throws as
/// check_metric().
plot::Picture picture(std::span<const Run> runs, const std::string& metric);

/// Curves of the runs of both sides of a comparison, with the panel of the gap, if `metric` is a field of step records.
/// The band of three pairs or more is the 95 % interval of the gap at each point; that of fewer is twice the step
/// noise. Throws as check_metric() and as compare() of several runs.
plot::Picture comparison_picture(std::span<const Run> a, std::span<const Run> b, const std::string& metric,
                                 std::optional<double> gate);

}  // namespace fp8::log
