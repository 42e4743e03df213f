/// The data of plots: a metric of runs, the two sides of a comparison.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fp8/log/compare.h"
#include "fp8/log/run.h"
#include "fp8/plot/gaps.h"
#include "fp8/plot/plot.h"

namespace fp8::log {

/// Metric name for the losses of evaluations: "eval_loss".
inline constexpr std::string_view kEvalLoss = "eval_loss";

/// Name of the plot of the gaps between the sides of a comparison.
inline constexpr std::string_view kGaps = "gaps";

/// Throws Error listing the available metrics unless some run has values of `metric`, a field of step records or
/// kEvalLoss.
void check_metric(std::span<const Run> runs, const std::string& metric);

/// The curves of `metric`, for the runs that have it. The runs must have been read with `metric`. Throws as
/// check_metric().
plot::Picture picture(std::span<const Run> runs, const std::string& metric);

/// Curves of the runs of all sides of a comparison, a colour for each side, with the panel of the gaps to the first
/// side, if `metric` is a field of step records. The band of three pairs or more is the 95 % interval of the gap at
/// each point, and the band of fewer pairs is twice the step noise. Throws as check_metric() and as compare() of
/// several runs.
plot::Picture comparison_picture(std::span<const Side> sides, const std::string& metric, std::optional<double> gate);

/// The gaps of all sides to the first one: the training loss, and the evaluation loss if pairs have it.
/// `comparisons` has one for each side but the first, in order.
plot::GapChart gap_chart(std::span<const Side> sides, std::span<const PairedComparison> comparisons,
                         std::optional<double> gate);

}  // namespace fp8::log
