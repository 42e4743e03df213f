// Text reports of fp8-log.
#include "report.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <vector>

#include "fp8/base/text.h"

namespace fp8::report {
namespace {

using log::Comparison;
using log::Summary;
using Row = std::vector<std::string>;

constexpr const char* kGap = "   ";  // between columns

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

// Labels left-aligned, values right-aligned, a rule below the heading. `shown` selects columns.
std::string table(const std::vector<Row>& rows, std::span<const std::size_t> shown, const cli::Style& style) {
  const std::vector<std::size_t> widths = widths_of(rows);
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    std::size_t width = 0;
    for (const std::size_t c : shown) {
      const std::string padding(widths[c] - width_of(row[c]), ' ');
      line += (c == 0 ? "" : kGap) + (c == 0 ? row[c] + padding : padding + row[c]);
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

std::string fixed(double value, int decimals) {
  std::array<char, 400> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, decimals);
  return {text.data(), end};
}

// A loss or a difference of losses; small differences keep two digits.
std::string nats(double value) {
  constexpr double kSmall = 0.001;
  return value != 0 && std::abs(value) < kSmall ? format_short(value, 2) : fixed(value, 4);
}

std::string signed_nats(double value) { return (value < 0 ? "" : "+") + nats(value); }

template <typename T>
std::string or_dash(const std::optional<T>& value, const std::function<std::string(T)>& text) {
  return value ? text(*value) : "-";
}

std::string loss_text(const std::optional<double>& loss) { return or_dash<double>(loss, nats); }

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

std::string setting_text(const std::string& precision, const std::string& recipe, std::optional<bool> emulated) {
  if (precision.empty()) return "-";
  std::string text = precision + (recipe.empty() ? "" : " " + recipe);
  if (precision == "fp8" && emulated.value_or(false)) text += ", emulated";
  return terminal_safe(text);
}

std::string precision_text(const Summary& s) {
  if (s.phases.size() < 2 || s.phases.size() > 3) return setting_text(s.precision, s.recipe, s.emulated);
  std::string text;
  for (const auto& [step, phase] : s.phases) {
    text += (text.empty() ? "" : ", from " + std::to_string(step) + " ") +
            setting_text(phase.precision, phase.recipe, phase.emulated);
  }
  return text;
}

std::string steps_text(const Summary& s) {
  return std::to_string(s.steps) + (s.planned_steps ? " of " + std::to_string(*s.planned_steps) : "");
}

std::string spread_text(const Summary& s) {
  if (!s.tokens_per_s_p10 || !s.tokens_per_s_p90) return "-";
  return count_text(s.tokens_per_s_p10) + " to " + count_text(s.tokens_per_s_p90);
}

std::string state_text(const Summary& s) {
  if (!s.finished) return "no end record";
  return s.reason.empty() ? "ended" : terminal_safe(s.reason);
}

std::string tokens_text(const Summary& s) {
  return s.tokens ? human_count(static_cast<std::uint64_t>(*s.tokens)) : "-";
}

// A line of the summary; omitted when its text is `boring` for every run.
struct Line {
  std::string label;
  std::function<std::string(const Summary&)> text;
  std::string boring;  // empty: always shown
};

std::vector<Line> lines() {
  return {{"precision", precision_text, ""},
          {"steps", steps_text, ""},
          {"tokens", tokens_text, ""},
          {"loss, last part", [](const Summary& s) { return loss_text(s.mean_loss_last); }, ""},
          {"final loss", [](const Summary& s) { return loss_text(s.final_loss); }, ""},
          {"best loss", [](const Summary& s) { return loss_text(s.best_loss); }, ""},
          {"evaluation loss", [](const Summary& s) { return loss_text(s.eval_loss); }, "-"},
          {"tokens/s, median", [](const Summary& s) { return count_text(s.tokens_per_s); }, "-"},
          {"tokens/s, 10 to 90 %", spread_text, "-"},
          {"waiting for data", [](const Summary& s) { return share_text(s.data_wait_share); }, "-"},
          {"peak memory", [](const Summary& s) { return bytes_text(s.memory_peak_bytes); }, "-"},
          {"linears in FP8", [](const Summary& s) { return share_text(s.fp8_flop_share); }, "-"},
          {"all FLOPs in FP8", [](const Summary& s) { return share_text(s.fp8_flop_share_total); }, "-"},
          {"steps skipped", [](const Summary& s) { return std::to_string(s.skipped); }, ""},
          {"checkpoints", [](const Summary& s) { return std::to_string(s.checkpoints); }, ""},
          {"restarts", [](const Summary& s) { return std::to_string(s.restarts); }, ""},
          {"warnings", [](const Summary& s) { return std::to_string(s.warnings); }, "0"},
          {"state", state_text, ""}};
}

std::vector<Row> rows_of(std::span<const Summary> summaries) {
  std::vector<Row> rows(1, Row{"run"});
  for (const Summary& s : summaries) rows[0].push_back(terminal_safe(s.name));
  for (const Line& line : lines()) {
    Row row{line.label};
    for (const Summary& s : summaries) row.push_back(line.text(s));
    if (line.boring.empty() ||
        std::any_of(row.begin() + 1, row.end(), [&](const std::string& t) { return t != line.boring; })) {
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string gap_text(const Comparison& c) {
  if (!c.gap) return "-";
  return signed_nats(*c.gap) + (c.gap_standard_error ? " \u00b1 " + nats(*c.gap_standard_error) : "");
}

std::optional<double> difference(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a || !b) return std::nullopt;
  return *b - *a;
}

std::vector<Row> rows_of(const Comparison& c) {
  const auto gap = [](const std::optional<double>& v) { return or_dash<double>(v, signed_nats); };
  const Summary &a = c.a, &b = c.b;
  std::vector<Row> rows = {
      {"metric", terminal_safe(a.name), terminal_safe(b.name), "difference"},
      {"precision", precision_text(a), precision_text(b), ""},
      {"steps", steps_text(a), steps_text(b), ""},
      {"loss, last " + std::to_string(c.window), loss_text(c.loss_a), loss_text(c.loss_b), gap_text(c)},
      {"final loss", loss_text(a.final_loss), loss_text(b.final_loss), gap(c.final_gap)},
      {"best loss", loss_text(a.best_loss), loss_text(b.best_loss), gap(difference(a.best_loss, b.best_loss))}};
  const auto add = [&](const char* label, const std::string& x, const std::string& y, const std::string& d) {
    if (x != "-" || y != "-") rows.push_back({label, x, y, d});
  };
  add("evaluation loss", loss_text(a.eval_loss), loss_text(b.eval_loss), gap(difference(a.eval_loss, b.eval_loss)));
  add("tokens/s", count_text(a.tokens_per_s), count_text(b.tokens_per_s), ratio_text(c.speedup));
  add("peak memory", bytes_text(a.memory_peak_bytes), bytes_text(b.memory_peak_bytes), ratio_text(c.memory_ratio));
  add("linears in FP8", share_text(a.fp8_flop_share), share_text(b.fp8_flop_share), "");
  add("all FLOPs in FP8", share_text(a.fp8_flop_share_total), share_text(b.fp8_flop_share_total), "");
  if (a.skipped + b.skipped > 0) add("steps skipped", std::to_string(a.skipped), std::to_string(b.skipped), "");
  return rows;
}

std::string verdict(const Comparison& c, std::optional<double> gate, const cli::Style& style) {
  if (!c.gap) {
    const std::string why = "the losses are not finite";
    return gate ? style.red("gate not met") + ": " + why : style.red(why);
  }
  const std::string gap = "the loss gap of " + signed_nats(*c.gap) + " nats";
  if (gate) {
    const bool met = log::meets(c, *gate);
    return (met ? style.green("gate met") : style.red("gate not met")) + ": " + gap +
           (met ? " is within " : " exceeds ") + format_short(*gate, 4);
  }
  if (!c.gap_standard_error) return gap + " has no standard error: one point";
  return gap + (log::beyond_noise(c) ? " exceeds the noise" : " is within the noise") + " (2 x " +
         nats(*c.gap_standard_error) + ")";
}

}  // namespace

std::string summaries(std::span<const Summary> summaries, const cli::Style& style, int columns) {
  const std::vector<Row> rows = rows_of(summaries);
  const std::vector<std::size_t> widths = widths_of(rows);
  std::string out;
  for (std::size_t next = 1; next <= summaries.size();) {
    std::vector<std::size_t> shown = {0, next};
    std::size_t width = widths[0] + 3 + widths[next++];
    for (; next <= summaries.size() && width + 3 + widths[next] <= static_cast<std::size_t>(columns); ++next) {
      width += 3 + widths[next];
      shown.push_back(next);
    }
    out += (out.empty() ? "" : "\n") + table(rows, shown, style);
  }
  return out;
}

std::string comparison(const Comparison& c, std::optional<double> gate, const cli::Style& style) {
  constexpr std::array<std::size_t, 4> kAll = {0, 1, 2, 3};
  const std::string matched = "matched at " + std::to_string(c.points) + (c.points == 1 ? " point" : " points") + ", " +
                              human_count(static_cast<std::uint64_t>(c.first_tokens)) + " to " +
                              human_count(static_cast<std::uint64_t>(c.last_tokens)) + " tokens";
  return table(rows_of(c), kAll, style) + style.dim(matched) + "\n" + verdict(c, gate, style) + "\n";
}

}  // namespace fp8::report
