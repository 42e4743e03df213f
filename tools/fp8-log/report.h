/// Text reports of fp8-log. Text from files passes through terminal_safe().
#pragma once

#include <optional>
#include <span>
#include <string>

#include "cells.h"
#include "fp8/log/compare.h"
#include "fp8/log/overview.h"
#include "fp8/log/summary.h"

namespace fp8::report {

/// One column per run.
std::string summaries(std::span<const log::Summary> summaries, const Page& page);

/// One row per run: the settings that differ, losses, gap to the baseline, tokens/s; below it a row for each step at
/// which the run changed precision or settings.
std::string overview(const log::Overview& overview, const Page& page);

/// A table of a pair of runs, or of several pairs, the settings that differ, what is known of the noise, and the
/// verdict. `sides` are A and B.
std::string comparison(const log::PairedComparison& comparison, std::span<const log::Side> sides,
                       std::optional<double> gate, const Page& page);

/// Tables with a row for each of three sides or more: the training and the evaluation loss with its gap to the first
/// side, speed, memory, the settings that differ; then a line for each side with its verdict.
std::string comparisons(std::span<const log::Side> sides, std::span<const log::PairedComparison> comparisons,
                        std::optional<double> gate, const Page& page);

}  // namespace fp8::report
