// Cells and tables of the text reports.
#include "cells.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>

#include "fp8/base/text.h"

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

std::string setting_text(const std::string& precision, const std::string& recipe, std::optional<bool> emulated) {
  if (precision.empty()) return "-";
  std::string text = precision + (recipe.empty() ? "" : " " + recipe);
  if (precision == "fp8" && emulated.value_or(false)) text += ", emulated";
  return terminal_safe(text);
}

}  // namespace

std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80; }));
}

std::vector<std::size_t> widths_of(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  return widths;
}

std::string table(const std::vector<Row>& rows, std::span<const std::size_t> shown, const cli::Style& style,
                  std::size_t left) {
  const std::vector<std::size_t> widths = widths_of(rows);
  std::string out;
  for (const Row& row : rows) {
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

std::string table(const std::vector<Row>& rows, const cli::Style& style, std::size_t left) {
  std::vector<std::size_t> all;
  for (std::size_t c = 0; c < rows.front().size(); ++c) all.push_back(c);
  return table(rows, all, style, left);
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

std::string ratio_text(const std::optional<double>& ratio) {
  return or_dash<double>(ratio, [](double v) { return format_short(v, 3) + " x"; });
}

std::string precision_text(const Summary& s) {
  constexpr std::size_t kMost = 3;
  if (s.phases.size() < 2) return setting_text(s.precision, s.recipe, s.emulated);
  std::string text;
  std::size_t at = 0;
  for (const auto& [step, phase] : s.phases) {
    if (++at == kMost && s.phases.size() > kMost) text += ", ...";
    if (at >= kMost && at < s.phases.size()) continue;  // the last one is shown
    text += (text.empty() ? "" : ", from " + std::to_string(step) + " ") +
            setting_text(phase.precision, phase.recipe, phase.emulated);
  }
  return text + (s.phases.size() > kMost ? " (" + std::to_string(s.phases.size()) + " phases)" : "");
}

std::string steps_text(const Summary& s) {
  return std::to_string(s.steps) + (s.planned_steps ? " of " + std::to_string(*s.planned_steps) : "");
}

}  // namespace fp8::report
