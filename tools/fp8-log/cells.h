/// Cells and tables of the text reports.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8/cli/output.h"
#include "fp8/log/summary.h"

namespace fp8::report {

using Row = std::vector<std::string>;

/// Width of UTF-8 text in characters.
std::size_t width_of(const std::string& text);

/// Width of each column.
std::vector<std::size_t> widths_of(const std::vector<Row>& rows);

/// The columns `shown` of a table: the first `left` columns left-aligned, the others right-aligned, a rule below the
/// heading.
std::string table(const std::vector<Row>& rows, std::span<const std::size_t> shown, const cli::Style& style,
                  std::size_t left = 1);

/// All columns of a table, as above.
std::string table(const std::vector<Row>& rows, const cli::Style& style, std::size_t left = 1);

/// A loss or a difference of losses in nats; small differences keep two digits.
std::string nats(double value);
/// nats() with its sign.
std::string signed_nats(double value);
/// nats(); a dash for a missing value, as in all functions below.
std::string loss_text(const std::optional<double>& loss);
/// signed_nats() of a gap.
std::string gap_text(const std::optional<double>& gap);
/// A count with a suffix: 19.6 k.
std::string count_text(const std::optional<double>& count);
/// A size with its unit.
std::string bytes_text(const std::optional<double>& bytes);
/// A share in percent.
std::string share_text(const std::optional<double>& share);
/// A ratio: 1.36 x.
std::string ratio_text(const std::optional<double>& ratio);
/// Precision and recipe of a run; up to three phases with their first steps, else the last one.
std::string precision_text(const log::Summary& summary);
/// Number of steps, and of the planned ones.
std::string steps_text(const log::Summary& summary);

}  // namespace fp8::report
