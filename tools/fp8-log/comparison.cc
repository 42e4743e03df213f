// Text report of a comparison.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <span>
#include <vector>

#include "fp8/base/text.h"
#include "report.h"

namespace fp8::report {
namespace {

using log::Comparison;
using log::PairedComparison;
using log::Summary;

std::optional<double> difference(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a || !b) return std::nullopt;
  return *b - *a;
}

// "0.8 x, emulated": a ratio of speeds, and whether one of them is not that of FP8.
std::string speed_text(const std::optional<double>& ratio, bool emulated) {
  return ratio_text(ratio) + (ratio && emulated ? ", emulated" : "");
}

// Metrics of both runs of a pair and their differences.
std::vector<Row> comparison_rows(const Comparison& c) {
  const Summary &a = c.a, &b = c.b;
  std::vector<Row> rows = {{"metric", terminal_safe(a.name), terminal_safe(b.name), "difference"},
                           {"precision", precision_text(a), precision_text(b), ""}};
  const std::array<const Summary*, 2> both = {&a, &b};
  for (Row& phase : phase_rows(both)) {
    phase.emplace_back();
    rows.push_back(std::move(phase));
  }
  const std::vector<Row> more = {
      {"steps", steps_text(a), steps_text(b), ""},
      {"loss, last " + std::to_string(c.window), loss_text(c.loss_a), loss_text(c.loss_b), gap_text(c.gap)},
      {"last loss", loss_text(c.final_a), loss_text(c.final_b), gap_text(c.final_gap)},
      {"best loss", loss_text(a.best_loss), loss_text(b.best_loss), gap_text(difference(a.best_loss, b.best_loss))}};
  rows.insert(rows.end(), more.begin(), more.end());
  const auto add = [&](const char* label, const std::string& x, const std::string& y, const std::string& d) {
    if (x != "-" || y != "-") rows.push_back({label, x, y, d});
  };
  if (c.eval_gap) {
    add("evaluation loss", loss_text(c.eval_a), loss_text(c.eval_b), gap_text(c.eval_gap));
  } else {
    add("evaluation loss", loss_text(a.eval_loss), loss_text(b.eval_loss), "");
  }
  const bool emulated = log::computed_in(both).emulated();
  add("tokens/s", count_text(a.tokens_per_s), count_text(b.tokens_per_s), speed_text(c.speedup, emulated));
  add("peak memory", bytes_text(a.memory_peak_bytes), bytes_text(b.memory_peak_bytes), ratio_text(c.memory_ratio));
  add("linears in FP8", share_text(a.fp8_flop_share), share_text(b.fp8_flop_share), "");
  add("all FLOPs in FP8", share_text(a.fp8_flop_share_total), share_text(b.fp8_flop_share_total), "");
  add("linears in FP4", share_text(a.fp4_flop_share), share_text(b.fp4_flop_share), "");
  add("all FLOPs in FP4", share_text(a.fp4_flop_share_total), share_text(b.fp4_flop_share_total), "");
  for (const ExpertFigure& f : kExpertFigures) add(f.label, expert_text(a, f), expert_text(b, f), "");
  if (a.skipped + b.skipped > 0) add("steps skipped", std::to_string(a.skipped), std::to_string(b.skipped), "");
  return rows;
}

// The text of a cell when it is the same for all pairs, else "several".
template <typename Text>
std::string common(const PairedComparison& c, Text text) {
  const std::string first = text(c.pairs.front());
  const bool same = std::all_of(c.pairs.begin(), c.pairs.end(), [&](const Comparison& p) { return text(p) == first; });
  return same ? first : "several";
}

// A row per pair, and their mean.
std::vector<Row> comparison_rows(const PairedComparison& c) {
  const std::string window = common(c, [](const Comparison& p) { return std::to_string(p.window); });
  const std::string last = window == "several" ? "last part" : "last " + window;
  std::vector<Row> rows = {{"A", "B", "seed", "loss A, " + last, "loss B", "gap"}};
  for (std::size_t i = 0; i < c.pairs.size(); ++i) {
    const Comparison& p = c.pairs[i];
    rows.push_back({terminal_safe(p.a.name), terminal_safe(p.b.name),
                    c.seeds[i].empty() ? "-" : terminal_safe(c.seeds[i]), loss_text(p.loss_a), loss_text(p.loss_b),
                    gap_text(p.gap)});
  }
  rows.push_back({"mean", "", "", "", "", gap_text(c.gap)});
  if (c.interval) rows.push_back({"95 % interval", "", "", "", "", "\u00b1 " + nats(*c.interval)});
  return rows;
}

// A row per pair with the losses of evaluations, and their mean.
std::vector<Row> evaluation_rows(const PairedComparison& c) {
  std::vector<Row> rows = {{"A", "B", "seed", "evaluation loss A", "loss B", "gap"}};
  for (std::size_t i = 0; i < c.pairs.size(); ++i) {
    const Comparison& p = c.pairs[i];
    rows.push_back({terminal_safe(p.a.name), terminal_safe(p.b.name),
                    c.seeds[i].empty() ? "-" : terminal_safe(c.seeds[i]), loss_text(p.eval_a), loss_text(p.eval_b),
                    gap_text(p.eval_gap)});
  }
  rows.push_back({"mean", "", "", "", "", gap_text(c.eval_gap)});
  if (c.eval_interval) rows.push_back({"95 % interval", "", "", "", "", "\u00b1 " + nats(*c.eval_interval)});
  return rows;
}

// "fp8 rowwise, emulated"; "bf16; fp8 rowwise" of runs whose precision changed.
std::string precisions_text(const log::Computed& computed) {
  std::string text;
  for (const log::Phase& phase : computed.precisions) text += (text.empty() ? "" : "; ") + phase_text(phase);
  return text.empty() ? "-" : text;
}

// What each side was computed in, and its speed and memory relative to the first. Columns without a value are left
// out.
std::string sides_table(std::span<const std::string> names, std::span<const PairedComparison> comparisons,
                        const Page& page) {
  std::vector<Row> rows = {{"side", "precision", "linears in FP8", "all FLOPs in FP8", "linears in FP4",
                            "all FLOPs in FP4", "tokens/s", "memory"}};
  const auto add = [&](const std::string& name, const log::Computed& computed, const std::string& speed,
                       const std::string& memory) {
    rows.push_back({terminal_safe(name), precisions_text(computed), share_text(computed.fp8_flop_share),
                    share_text(computed.fp8_flop_share_total), share_text(computed.fp4_flop_share),
                    share_text(computed.fp4_flop_share_total), speed, memory});
  };
  const auto one_if = [&](std::optional<double> PairedComparison::*ratio) {
    const bool known =
        std::ranges::any_of(comparisons, [&](const PairedComparison& c) { return (c.*ratio).has_value(); });
    return known ? "1 x" : "";
  };
  add(names.front(), comparisons.front().a, one_if(&PairedComparison::speedup),
      one_if(&PairedComparison::memory_ratio));
  for (std::size_t k = 0; k < comparisons.size(); ++k) {
    const PairedComparison& c = comparisons[k];
    add(names[k + 1], c.b, speed_text(c.speedup, c.a.emulated() || c.b.emulated()), ratio_text(c.memory_ratio));
  }
  for (std::size_t column = rows.front().size(); column-- > 1;) {
    const auto no_value = [&](const Row& row) { return row[column].empty() || row[column] == "-"; };
    if (!std::all_of(rows.begin() + 1, rows.end(), no_value)) continue;
    for (Row& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
  const std::size_t columns = rows.front().size();
  return columns == 1 ? "" : "\n" + table(rows, page, std::min<std::size_t>(columns - 1, 2));
}

// The figures of experts of the runs of each side, as means over the runs that have them; empty if none has any.
std::string expert_table(std::span<const std::string> names, std::span<const std::vector<const Summary*>> sides,
                         const Page& page) {
  std::vector<Row> rows = {{"side"}};
  for (const std::string& name : names) rows.push_back({terminal_safe(name)});
  for (const ExpertFigure& f : kExpertFigures) {
    std::vector<std::string> cells;
    for (const std::vector<const Summary*>& runs : sides) {
      std::vector<double> values;
      for (const Summary* s : runs)
        if (s->*f.of) values.push_back(*(s->*f.of));
      const double sum = std::accumulate(values.begin(), values.end(), 0.0);
      cells.push_back(values.empty() ? "-" : short_text(sum / static_cast<double>(values.size())));
    }
    if (std::ranges::all_of(cells, [](const std::string& c) { return c == "-"; })) continue;
    rows.front().emplace_back(f.column);
    for (std::size_t i = 0; i < cells.size(); ++i) rows[i + 1].push_back(cells[i]);
  }
  return rows.front().size() == 1 ? "" : "\n" + table(rows, page);
}

// The runs of a side of pairs.
std::vector<const Summary*> runs_of(const PairedComparison& c, Summary Comparison::*side) {
  std::vector<const Summary*> runs;
  for (const Comparison& p : c.pairs) runs.push_back(&(p.*side));
  return runs;
}

bool evaluated(const PairedComparison& c) {
  return std::ranges::any_of(c.pairs, [](const Comparison& p) { return p.eval_gap.has_value(); });
}

std::string matched_text(const PairedComparison& c) {
  const auto text = [](const Comparison& p) {
    return counted(p.points, "point") + ", " + human_count(static_cast<std::uint64_t>(p.first_tokens)) + " to " +
           human_count(static_cast<std::uint64_t>(p.last_tokens)) + " tokens";
  };
  const std::string all = common(c, text);
  return "matched at " + (all == "several" ? "different points" : all);
}

std::string joined_names(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + terminal_safe(name);
  return all;
}

// The settings that differ.
std::string settings_text(const PairedComparison& c, const Page& page) {
  std::string text;
  if (!c.differences.empty()) {
    std::vector<Row> rows = {{"setting that differs", "A", "B"}};
    for (const log::Difference& d : c.differences) {
      rows.push_back({terminal_safe(d.name), terminal_safe(d.a), terminal_safe(d.b)});
    }
    text += "\n" + table(rows, page);
  }
  return text;
}

// The runs that are not compared, or whose settings are not.
std::string notes_text(const PairedComparison& c) {
  std::string text;
  if (!c.unpaired.empty())
    text += "not paired, so not used: " + joined_names(c.unpaired) + " (they have no partner on the other side)\n";
  if (!c.unknown.empty())
    text += "settings unknown, so not compared: " + joined_names(c.unknown) + " (log without config)\n";
  return text;
}

// A line if runs are compared with themselves.
std::string same_run_text(const PairedComparison& c) {
  std::vector<std::string> same;
  for (const Comparison& p : c.pairs) {
    std::error_code ignored;  // "-" is no path
    if (p.a.path == p.b.path || std::filesystem::equivalent(p.a.path, p.b.path, ignored)) same.push_back(p.a.path);
  }
  if (same.empty()) return "";
  return joined_names(same) + ": compared with " + (same.size() == 1 ? "itself" : "themselves") +
         ", which shows nothing\n";
}

// Whether each pair has a seed of its own, so that all pairs are independent.
bool has_own_seeds(const PairedComparison& c) { return c.seed_count == c.pairs.size(); }

// A sentence about the noise of the gap.
std::string noise_text(const PairedComparison& c) {
  if (!c.gap || c.interval) return "";
  const std::string steps = c.step_noise ? "step noise: \u00b1 " + nats(*c.step_noise) +
                                               " nats (standard error over the steps within the runs)\n"
                                         : "step noise: unknown (one point)\n";
  return steps + "noise between runs: unknown from " + log::interval_basis(c.seed_count, c.pairs.size()) +
         " of runs; " + std::to_string(log::kEnoughPairs) + (has_own_seeds(c) ? "" : " seeds") +
         " or more give an interval\n";
}

// The runs that diverged, so that no gate is met; empty if none did.
std::string diverged_text(const PairedComparison& c) {
  std::string names;
  for (const Comparison& p : c.pairs) {
    for (const Summary* s : {&p.a, &p.b}) {
      if (s->diverged) names += (names.empty() ? "" : ", ") + terminal_safe(s->name);
    }
  }
  return names.empty() ? "" : "diverged: " + names;
}

// "+0.0102 ± 0.0131 nats", and over how many pairs or seeds.
std::string gap_and_interval(const PairedComparison& c, const std::optional<double>& gap,
                             const std::optional<double>& interval) {
  if (!interval) return signed_nats(*gap) + " nats";
  return signed_nats(*gap) + " \u00b1 " + nats(*interval) + " nats (95 % interval over " +
         log::interval_basis(c.seed_count, c.pairs.size()) + ")";
}

std::string more_text(const PairedComparison& c, const std::optional<std::size_t>& more, const std::string& what) {
  const std::string unit = has_own_seeds(c) ? "pair" : "seed";
  return more ? "about " + counted(*more, "more " + unit) + " would " + what
              : "more than " + std::to_string(log::kMostPairs) + " " + unit + "s would be needed to " + what;
}

// How many more pairs would show a gap where the interval includes 0: the gap of the gate, or the mean gap without one.
std::string includes_zero_text(const PairedComparison& c, double gap, double interval, std::optional<double> gate) {
  const bool gated = gate && *gate > 0;
  const double wanted = gated ? *gate : std::abs(gap);
  const std::string of_size = "a gap of " + (gated ? format_short(wanted, 4) : nats(wanted));
  if (wanted == 0) return "cannot tell";
  if (interval < wanted) return "cannot tell; " + of_size + " would have shown";
  return "cannot tell; " + more_text(c, log::more_pairs(interval, c.seed_count, wanted), "show " + of_size);
}

// Whether the interval of a gap excludes 0.
std::string zero_text(const PairedComparison& c, const std::string& what, const std::optional<double>& gap,
                      const std::optional<double>& interval, std::optional<double> gate) {
  if (!gap) return "";
  std::string text = "the " + what + " gap is " + gap_and_interval(c, gap, interval);
  if (!interval) return text;
  if (std::abs(*gap) > *interval) return text + ", which excludes 0";
  return text + ", which includes 0: " + includes_zero_text(c, *gap, *interval, gate);
}

// The gap of the evaluations, and under a gate the gap of the training losses, before the verdict.
std::string zero_lines(const PairedComparison& c, std::optional<double> gate) {
  std::string text;
  if (c.eval_gap && c.eval_interval) text += zero_text(c, "evaluation loss", c.eval_gap, c.eval_interval, gate) + "\n";
  if (gate && c.gap && c.interval) text += zero_text(c, "loss", c.gap, c.interval, gate) + "\n";
  return text;
}

std::string verdict_text(const PairedComparison& c, std::optional<double> gate, const cli::Style& style) {
  if (!c.gap) {
    const std::string why = "the losses are not finite";
    return gate ? style.red("gate not met") + ": " + why : style.red(why);
  }
  const std::string diverged = diverged_text(c);
  if (gate && !diverged.empty()) return style.red("gate not met") + ": " + diverged;
  if (!gate) return zero_text(c, "loss", c.gap, c.interval, gate);
  const std::string limit = format_short(*gate, 4),
                    of_gap = ": the loss gap of " + gap_and_interval(c, c.gap, c.interval);
  switch (log::verdict(c, *gate)) {
    case log::Verdict::met:
      return style.green("gate met") + of_gap + " is within " + limit;
    case log::Verdict::not_met:
      return style.red("gate not met") + of_gap + " exceeds " + limit;
    case log::Verdict::cannot_tell:
      break;
  }
  return style.yellow("cannot tell") + of_gap + " is partly within " + limit + "; " +
         more_text(c, pairs_to_gate(c, *gate), "decide");
}

// Whether an interval excludes 0.
std::string zero_cell(const std::optional<double>& gap, const std::optional<double>& interval) {
  if (!gap || !interval) return "-";
  return std::abs(*gap) > *interval ? "yes" : "no";
}

// "the interval of the loss gap includes 0: cannot tell; about 6 more pairs would show a gap of 0.004"; empty if the
// interval excludes 0 or is unknown.
std::string unclear_line(const PairedComparison& c, const std::string& what, const std::optional<double>& gap,
                         const std::optional<double>& interval, std::optional<double> gate) {
  if (!gap || !interval || std::abs(*gap) > *interval) return "";
  return "the interval of the " + what + " gap includes 0: " + includes_zero_text(c, *gap, *interval, gate) + "\n";
}

// The lines below the tables.
std::string lines_of(const PairedComparison& c, std::optional<double> gate, const cli::Style& style) {
  return notes_text(c) + same_run_text(c) + noise_text(c) + unclear_line(c, "loss", c.gap, c.interval, gate) +
         unclear_line(c, "evaluation loss", c.eval_gap, c.eval_interval, gate) +
         (gate || !c.gap ? verdict_text(c, gate, style) + "\n" : "");
}

std::string indented(const std::string& lines) {
  std::string text;
  for (std::size_t from = 0, end = 0; from < lines.size(); from = end + 1) {
    end = lines.find('\n', from);
    text += "  " + lines.substr(from, end + 1 - from);
  }
  return text;
}

// A loss of all sides: `of_a`, `of_b` and `gap` belong to a pair, `mean` and `interval` to a side.
struct LossOfSides {
  std::string title;
  std::optional<double> Comparison::*of_a, Comparison::*of_b;
  std::optional<double> PairedComparison::*mean, PairedComparison::*interval;
};

std::optional<double> mean_over(const PairedComparison& c, std::optional<double> Comparison::*loss) {
  double sum = 0;
  for (const Comparison& p : c.pairs) {
    if (!(p.*loss)) return std::nullopt;
    sum += *(p.*loss);
  }
  return sum / static_cast<double>(c.pairs.size());
}

// "3", or "9 of 3 seeds".
std::string pairs_cell(const PairedComparison& c) {
  const std::string pairs = std::to_string(c.pairs.size());
  return has_own_seeds(c) ? pairs : pairs + " of " + counted(c.seed_count, "seed");
}

// A row per side. The first side has the mean over the pairs of the comparison with the most of them.
std::vector<Row> comparison_rows(std::span<const log::Side> sides, std::span<const PairedComparison> comparisons,
                                 const LossOfSides& loss) {
  const PairedComparison& most =
      *std::ranges::max_element(comparisons, {}, [](const PairedComparison& c) { return c.pairs.size(); });
  std::vector<Row> rows = {
      {loss.title, "pairs", "mean", "gap", "95 % interval", "excludes 0"},
      {terminal_safe(sides.front().name), pairs_cell(most), loss_text(mean_over(most, loss.of_a)), "", "", ""}};
  for (std::size_t k = 0; k < comparisons.size(); ++k) {
    const PairedComparison& c = comparisons[k];
    const std::optional<double>&gap = c.*loss.mean, &interval = c.*loss.interval;
    rows.push_back({terminal_safe(sides[k + 1].name), pairs_cell(c), loss_text(mean_over(c, loss.of_b)), gap_text(gap),
                    interval ? "\u00b1 " + nats(*interval) : "-", zero_cell(gap, interval)});
  }
  return rows;
}

// The settings in which sides differ from the first, a row for each value of a side.
std::string settings_table(std::span<const log::Side> sides, std::span<const PairedComparison> comparisons,
                           const Page& page) {
  std::vector<Row> rows = {{"side", "setting that differs", "in " + terminal_safe(sides.front().name), "in the side"}};
  for (std::size_t k = 0; k < comparisons.size(); ++k) {
    for (const log::Difference& d : comparisons[k].differences) {
      rows.push_back({terminal_safe(sides[k + 1].name), terminal_safe(d.name), terminal_safe(d.a), terminal_safe(d.b)});
    }
  }
  return rows.size() == 1 ? "" : "\n" + table(rows, page, 2);
}

// "A: bf16": the letter of a side in the other tables, and its name if it has one.
std::string lettered(const std::string& letter, const std::string& name) {
  return name == letter ? letter : letter + ": " + name;
}

}  // namespace

std::string comparison(const PairedComparison& c, std::span<const log::Side> sides, std::optional<double> gate,
                       const Page& page) {
  const bool one = c.pairs.size() == 1;
  const std::array<std::string, 2> names{lettered("A", sides[0].name), lettered("B", sides[1].name)};
  const std::array runs{runs_of(c, &Comparison::a), runs_of(c, &Comparison::b)};
  const std::string tables = table(one ? comparison_rows(c.pairs.front()) : comparison_rows(c), page, one ? 1 : 2) +
                             (one || !evaluated(c) ? "" : "\n" + table(evaluation_rows(c), page, 2)) +
                             (one ? "" : sides_table(names, std::span(&c, 1), page)) +
                             (one ? "" : expert_table(names, runs, page)) + page.style.dim(matched_text(c)) + "\n" +
                             settings_text(c, page);
  return tables + wrapped(notes_text(c) + (c.differences.empty() ? "" : "\n") + same_run_text(c) + noise_text(c) +
                              zero_lines(c, gate) + verdict_text(c, gate, page.style) + "\n",
                          page);
}

std::string comparisons(std::span<const log::Side> sides, std::span<const PairedComparison> comparisons,
                        std::optional<double> gate, const Page& page) {
  const std::string window = common(comparisons.front(), [](const Comparison& p) { return std::to_string(p.window); });
  std::string text =
      table(comparison_rows(sides, comparisons,
                            {"loss, last " + (window == "several" ? "part" : window), &Comparison::loss_a,
                             &Comparison::loss_b, &PairedComparison::gap, &PairedComparison::interval}),
            page);
  if (std::ranges::any_of(comparisons, evaluated)) {
    text += "\n" + table(comparison_rows(sides, comparisons,
                                         {"evaluation loss", &Comparison::eval_a, &Comparison::eval_b,
                                          &PairedComparison::eval_gap, &PairedComparison::eval_interval}),
                         page);
  }
  std::vector<std::string> names;
  for (const log::Side& side : sides) names.push_back(side.name);
  std::vector<std::vector<const Summary*>> runs{runs_of(comparisons.front(), &Comparison::a)};
  for (const PairedComparison& c : comparisons) runs.push_back(runs_of(c, &Comparison::b));
  text += sides_table(names, comparisons, page) + expert_table(names, runs, page) +
          settings_table(sides, comparisons, page) + "\n";
  const std::string matched = matched_text(comparisons.front());
  const bool alike = std::ranges::all_of(comparisons, [&](const auto& c) { return matched_text(c) == matched; });
  text += page.style.dim(alike ? matched : "matched at different points") + "\n";
  const auto has_interval = [](const PairedComparison& c) { return c.interval || c.eval_interval; };
  if (std::ranges::any_of(comparisons, has_interval))
    text += wrapped("the 95 % intervals are not adjusted for " + counted(comparisons.size(), "comparison") +
                        "; one of many excludes 0 by chance\n",
                    page);
  std::vector<std::string> lines;
  for (const PairedComparison& c : comparisons) lines.push_back(lines_of(c, gate, page.style));
  const bool same = std::ranges::all_of(lines, [&](const std::string& l) { return l == lines.front(); });
  if (same) return text + wrapped(lines.front(), page);
  for (std::size_t k = 0; k < lines.size(); ++k)
    text += page.style.bold(terminal_safe(sides[k + 1].name)) + "\n" + wrapped(indented(lines[k]), page);
  return text;
}

}  // namespace fp8::report
