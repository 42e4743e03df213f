/// Cells and tables of the text reports.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8/cli/output.h"
#include "fp8/log/summary.h"

namespace fp8::report {

using Row = std::vector<std::string>;

/// How a report is printed.
struct Page {
  cli::Style style{};
  std::size_t columns = 80;  ///< most characters in a line of a table
  bool wraps_text = false;   ///< whether lines of text have that limit too: on a terminal
};

/// The page on standard output.
Page page_of_stdout();

/// A table: the first `left` columns left-aligned, the others right-aligned, a rule below the heading. A table that is
/// wider than the page becomes several, each with the first `left` columns, of which the very first is cut last.
std::string table(const std::vector<Row>& rows, const Page& page, std::size_t left = 1);

/// Whether the first `left` columns of a table fit on the page whole, beside the widest of the others.
bool fits(const std::vector<Row>& rows, const Page& page, std::size_t left);

/// Lines of text, broken between words if the page says so.
std::string wrapped(const std::string& text, const Page& page);

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
/// A number with four digits.
std::string short_text(const std::optional<double>& value);
/// A ratio: 1.36 x.
std::string ratio_text(const std::optional<double>& ratio);
/// Precision and recipe of a phase.
std::string phase_text(const log::Phase& phase);
/// Precision and recipe of the first steps of a run.
std::string precision_text(const log::Summary& summary);
/// Rows for the phases behind the first one: a label, then a cell for each run.
std::vector<Row> phase_rows(std::span<const log::Summary* const> summaries);
/// What is shown of a run with many phases or changes.
inline constexpr std::size_t kMostPhases = 8;
/// A figure that only mixtures of experts have.
struct ExpertFigure {
  const char* label;                        ///< of a row
  const char* column;                       ///< heading of a column
  std::optional<double> log::Summary::*of;  ///< its mean over the last part of a run
};
/// All of them, in the order of reports.
inline constexpr std::array<ExpertFigure, 5> kExpertFigures = {
    {{"aux loss", "aux loss", &log::Summary::aux_loss},
     {"z loss", "z loss", &log::Summary::z_loss},
     {"load, largest / mean", "max load", &log::Summary::expert_load_max},
     {"idle experts", "idle", &log::Summary::expert_idle},
     {"passes of experts", "passes", &log::Summary::expert_passes}}};

/// A figure of a run; of idle experts also how many there are, if the log has it.
std::string expert_text(const log::Summary& summary, const ExpertFigure& figure);

/// Number of steps, and of the planned ones.
std::string steps_text(const log::Summary& summary);

}  // namespace fp8::report
