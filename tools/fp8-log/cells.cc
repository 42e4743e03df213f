// Cells and tables of the text reports.
#include "cells.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <numeric>

#include "fp8/base/characters.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"

namespace fp8::report {
namespace {

using log::Summary;

constexpr const char* kGap = "   ";  // between columns

std::string fixed(double value, int decimals) {
  std::array<char, 400> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, decimals);
  return {text.data(), end};
}

template <typename T>
std::string or_dash(const std::optional<T>& value, const std::function<std::string(T)>& text) {
  return value ? text(*value) : "-";
}

// Text of at most `width` characters, with "..." if some were cut.
std::string cut(const std::string& text, std::size_t width) {
  if (width_of(text) <= width) return text;
  std::string out;
  std::size_t used = 0;
  for (const char c : text) {
    if (begins_character(c) && ++used + 3 > width) break;
    out += c;
  }
  return out + "...";
}

// Width of each column.
std::vector<std::size_t> widths_of(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  return widths;
}

// Limits of the widths of columns, such that the widest of the others fits beside the first `left` ones, of which the
// widest is cut first and the very first, a name, last. The first ones have at most half of the page if others need the
// rest.
std::vector<std::size_t> width_limits(std::vector<std::size_t> widths, std::size_t page, std::size_t left) {
  constexpr std::size_t kLeast = 8;
  const auto first = widths.begin(), others = first + static_cast<std::ptrdiff_t>(left);
  const std::size_t beside = std::accumulate(first, others, 3 * left), rest = page - std::min(beside, page / 2);
  for (auto width = others; width != widths.end(); ++width) *width = std::min(*width, rest);
  const std::size_t widest = others == widths.end() ? 0 : *std::max_element(others, widths.end());
  while (std::accumulate(first, others, 3 * left) + widest > page) {
    auto cut = left > 1 ? std::max_element(first + 1, others) : first;
    if (*cut <= kLeast) cut = first;
    if (*cut <= kLeast) break;
    --*cut;
  }
  return widths;
}

// The columns `shown` of a table.
std::string part_of(const std::vector<Row>& rows, const std::vector<std::size_t>& widths,
                    std::span<const std::size_t> shown, const cli::Style& style, std::size_t left) {
  std::string out;
  const auto says_nothing = [&](const Row& row) {
    return std::ranges::all_of(shown, [&](std::size_t c) { return c < left || row[c].empty(); });
  };
  for (const Row& row : rows) {
    if (shown.size() < widths.size() && says_nothing(row)) continue;  // the row of another part
    std::string line;
    std::size_t width = 0;
    for (const std::size_t c : shown) {
      const std::string padding(widths[c] - width_of(row[c]), ' ');
      line += (c == 0 ? "" : kGap) + (c < left ? row[c] + padding : padding + row[c]);
      width += widths[c] + (c == 0 ? 0 : 3);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += (&row == &rows.front() ? style.bold(line) : line) + "\n";
    if (&row != &rows.front()) continue;
    std::string rule;
    for (std::size_t i = 0; i < width; ++i) rule += "\u2500";
    out += style.dim(rule) + "\n";
  }
  return out;
}

}  // namespace

Page page_of_stdout() {
  return {cli::Style::for_stdout(), static_cast<std::size_t>(cli::terminal_columns()), cli::stdout_is_terminal()};
}

bool fits(const std::vector<Row>& rows, const Page& page, std::size_t left) {
  const std::vector<std::size_t> widths = widths_of(rows);
  const auto others = widths.begin() + static_cast<std::ptrdiff_t>(left);
  const std::size_t widest = others == widths.end() ? 0 : *std::max_element(others, widths.end());
  return std::accumulate(widths.begin(), others, 3 * left) + widest <= page.columns;
}

std::string table(const std::vector<Row>& rows, const Page& page, std::size_t left) {
  const std::vector<std::size_t> limits = width_limits(widths_of(rows), page.columns, left);
  std::vector<Row> cells = rows;
  for (Row& row : cells)
    for (std::size_t c = 0; c < row.size(); ++c) row[c] = cut(row[c], limits[c]);
  const std::vector<std::size_t> widths = widths_of(cells);
  const std::size_t beside =
      std::accumulate(widths.begin(), widths.begin() + static_cast<std::ptrdiff_t>(left), 3 * left);
  std::string out;
  for (std::size_t next = left; next < widths.size();) {
    std::vector<std::size_t> shown;
    for (std::size_t c = 0; c < left; ++c) shown.push_back(c);
    std::size_t width = beside + widths[next];
    shown.push_back(next++);
    for (; next < widths.size() && width + 3 + widths[next] <= page.columns; ++next) {
      width += 3 + widths[next];
      shown.push_back(next);
    }
    out += (out.empty() ? "" : "\n") + part_of(cells, widths, shown, page.style, left);
  }
  return out;
}

std::string wrapped(const std::string& text, const Page& page) {
  return page.wraps_text ? cli::wrapped(text, page.columns) : text;
}

std::string nats(double value) {
  constexpr double kSmall = 0.001;
  return value != 0 && std::abs(value) < kSmall ? format_short(value, 2) : fixed(value, 4);
}

std::string signed_nats(double value) { return (value < 0 ? "" : "+") + nats(value); }

std::string loss_text(const std::optional<double>& loss) { return or_dash<double>(loss, nats); }

std::string gap_text(const std::optional<double>& gap) { return or_dash<double>(gap, signed_nats); }

std::string count_text(const std::optional<double>& count) {
  return or_dash<double>(count, [](double v) {
    return v < 100 ? format_short(v, 3) : human_count(static_cast<std::uint64_t>(std::llround(std::min(v, 1e18))));
  });
}

std::string bytes_text(const std::optional<double>& bytes) {
  return or_dash<double>(bytes,
                         [](double v) { return human_bytes(static_cast<std::uint64_t>(std::clamp(v, 0.0, 1e18))); });
}

std::string share_text(const std::optional<double>& share) {
  return or_dash<double>(share, [](double v) { return format_short(100 * v, 3) + " %"; });
}

std::string short_text(const std::optional<double>& value) {
  return or_dash<double>(value, [](double v) { return format_short(v, 4); });
}

std::string expert_text(const Summary& s, const ExpertFigure& figure) {
  const std::string text = short_text(s.*figure.of);
  const bool counted = figure.of == &Summary::expert_idle && s.expert_idle && s.experts;
  return counted ? text + " of " + std::to_string(*s.experts) : text;
}

std::string ratio_text(const std::optional<double>& ratio) {
  return or_dash<double>(ratio, [](double v) { return format_short(v, 3) + " x"; });
}

std::string phase_text(const log::Phase& phase) {
  if (phase.precision.empty()) return "-";
  std::string text = phase.precision + (phase.recipe.empty() ? "" : " " + phase.recipe);
  if (phase.precision == "fp8" && phase.emulated.value_or(false)) text += ", emulated";
  return terminal_safe(text);
}

std::string precision_text(const Summary& s) {
  if (!s.phases.empty()) return phase_text(s.phases.front().second);
  return phase_text({.first = 0, .precision = s.precision, .recipe = s.recipe, .emulated = s.emulated});
}

std::vector<Row> phase_rows(std::span<const Summary* const> summaries) {
  std::size_t most = 0;
  for (const Summary* s : summaries) most = std::max(most, s->phases.size());
  std::vector<Row> rows;
  for (std::size_t k = 1; k < std::min(most, kMostPhases); ++k) {
    Row row{"  phase " + std::to_string(k + 1)};
    for (const Summary* s : summaries) {
      const bool has = k < s->phases.size();
      row.push_back(has ? "from " + std::to_string(s->phases[k].first) + ": " + phase_text(s->phases[k].second) : "");
    }
    rows.push_back(std::move(row));
  }
  if (most <= kMostPhases) return rows;
  Row last{"  phases in all"};
  for (const Summary* s : summaries) last.push_back(std::to_string(s->phases.size()));
  rows.push_back(std::move(last));
  return rows;
}

std::string steps_text(const Summary& s) {
  return std::to_string(s.steps) + (s.planned_steps ? " of " + std::to_string(*s.planned_steps) : "");
}

}  // namespace fp8::report
