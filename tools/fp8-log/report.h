/// Text reports of fp8-log. Text from files passes through terminal_safe().
#pragma once

#include <optional>
#include <span>
#include <string>

#include "fp8/cli/output.h"
#include "fp8/log/compare.h"
#include "fp8/log/overview.h"
#include "fp8/log/summary.h"

namespace fp8::report {

/// One column per run; wrapped into several tables of at most `columns` characters.
std::string summaries(std::span<const log::Summary> summaries, const cli::Style& style, int columns);

/// One row per run: the settings that differ, loss, gap to the baseline, tokens/s.
std::string overview(const log::Overview& overview, const cli::Style& style);

/// A table of a pair of runs, or of several pairs, the settings that differ, what is known of the noise, and the
/// verdict.
std::string comparison(const log::PairedComparison& comparison, std::optional<double> gate, const cli::Style& style);

/// Tables with a row for each of three sides or more: the training and the evaluation loss with its gap to the first
/// side, speed, memory, the settings that differ; then a line for each side with its verdict.
std::string comparisons(std::span<const log::Side> sides, std::span<const log::PairedComparison> comparisons,
                        std::optional<double> gate, const cli::Style& style);

}  // namespace fp8::report
