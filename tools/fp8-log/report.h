/// fp8-log's answers as text for people. Text from files is made safe to show.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "fp8/cli/output.h"
#include "fp8/log/compare.h"
#include "fp8/log/summary.h"

namespace fp8::report {

/// A column a run, as many side by side as fit into `columns` characters.
std::string summaries(std::span<const log::Summary> summaries, const cli::Style& style, int columns);

/// The two runs side by side, what differs between them, and the verdict.
std::string comparison(const log::Comparison& comparison, std::optional<double> gate, const cli::Style& style);

}  // namespace fp8::report
