// Text report of a comparison.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cells.h"
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

// Metrics of both runs of a pair and their differences.
std::vector<Row> rows_of(const Comparison& c) {
  const Summary &a = c.a, &b = c.b;
  std::vector<Row> rows = {
      {"metric", terminal_safe(a.name), terminal_safe(b.name), "difference"},
      {"precision", precision_text(a), precision_text(b), ""},
      {"steps", steps_text(a), steps_text(b), ""},
      {"loss, last " + std::to_string(c.window), loss_text(c.loss_a), loss_text(c.loss_b), gap_text(c.gap)},
      {"last loss", loss_text(c.final_a), loss_text(c.final_b), gap_text(c.final_gap)},
      {"best loss", loss_text(a.best_loss), loss_text(b.best_loss), gap_text(difference(a.best_loss, b.best_loss))}};
  const auto add = [&](const char* label, const std::string& x, const std::string& y, const std::string& d) {
    if (x != "-" || y != "-") rows.push_back({label, x, y, d});
  };
  add("evaluation loss", loss_text(a.eval_loss), loss_text(b.eval_loss),
      gap_text(difference(a.eval_loss, b.eval_loss)));
  add("tokens/s", count_text(a.tokens_per_s), count_text(b.tokens_per_s), ratio_text(c.speedup));
  add("peak memory", bytes_text(a.memory_peak_bytes), bytes_text(b.memory_peak_bytes), ratio_text(c.memory_ratio));
  add("linears in FP8", share_text(a.fp8_flop_share), share_text(b.fp8_flop_share), "");
  add("all FLOPs in FP8", share_text(a.fp8_flop_share_total), share_text(b.fp8_flop_share_total), "");
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
std::vector<Row> rows_of(const PairedComparison& c) {
  const std::string window = common(c, [](const Comparison& p) { return std::to_string(p.window); });
  const std::string last = window == "several" ? "last part" : "last " + window;
  std::vector<Row> rows = {{"A", "B", "seed", "loss A, " + last, "loss B", "gap", "tokens/s", "memory"}};
  for (std::size_t i = 0; i < c.pairs.size(); ++i) {
    const Comparison& p = c.pairs[i];
    rows.push_back({terminal_safe(p.a.name), terminal_safe(p.b.name),
                    c.seeds[i].empty() ? "-" : terminal_safe(c.seeds[i]), loss_text(p.loss_a), loss_text(p.loss_b),
                    gap_text(p.gap), ratio_text(p.speedup), ratio_text(p.memory_ratio)});
  }
  rows.push_back({"mean", "", "", "", "", gap_text(c.gap), ratio_text(c.speedup), ratio_text(c.memory_ratio)});
  if (c.interval) rows.push_back({"95 % interval", "", "", "", "", "\u00b1 " + nats(*c.interval), "", ""});
  return rows;
}

std::string plural(std::size_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

std::string matched_text(const PairedComparison& c) {
  const auto text = [](const Comparison& p) {
    return plural(p.points, "point") + ", " + human_count(static_cast<std::uint64_t>(p.first_tokens)) + " to " +
           human_count(static_cast<std::uint64_t>(p.last_tokens)) + " tokens";
  };
  const std::string all = common(c, text);
  return "matched at " + (all == "several" ? "different points" : all);
}

// The settings that differ, and the runs without settings.
std::string settings_text(const PairedComparison& c, const cli::Style& style) {
  std::string text;
  if (!c.differences.empty()) {
    std::vector<Row> rows = {{"setting that differs", "A", "B"}};
    for (const log::Difference& d : c.differences) {
      rows.push_back({terminal_safe(d.name), terminal_safe(d.a), terminal_safe(d.b)});
    }
    text += "\n" + table(rows, style);
  }
  std::string names;
  for (const std::string& name : c.unknown) names += (names.empty() ? "" : ", ") + terminal_safe(name);
  if (!names.empty()) text += "settings unknown, so not compared: " + names + " (log without config)\n";
  return text;
}

// A line if runs are compared with themselves.
std::string same_run_text(const PairedComparison& c) {
  const auto same = std::ranges::find_if(c.pairs, [](const Comparison& p) { return p.a.path == p.b.path; });
  return same == c.pairs.end() ? "" : terminal_safe(same->a.path) + ": compared with itself, which shows nothing\n";
}

// What is known of the noise of the gap.
std::string noise_text(const PairedComparison& c) {
  if (!c.gap || c.interval) return "";
  const std::string steps = c.step_noise ? "step noise: \u00b1 " + nats(*c.step_noise) +
                                               " nats (standard error over the steps within the runs)\n"
                                         : "step noise: unknown (one point)\n";
  return steps + "noise between runs: unknown from " + plural(c.pairs.size(), "pair") + " of runs; " +
         std::to_string(log::kEnoughPairs) + " or more give an interval\n";
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

std::string verdict_text(const PairedComparison& c, std::optional<double> gate, const cli::Style& style) {
  if (!c.gap) {
    const std::string why = "the losses are not finite";
    return gate ? style.red("gate not met") + ": " + why : style.red(why);
  }
  const std::string diverged = diverged_text(c);
  if (gate && !diverged.empty()) return style.red("gate not met") + ": " + diverged;
  const std::string gap = signed_nats(*c.gap) + (c.interval ? " \u00b1 " + nats(*c.interval) : "") + " nats";
  const std::string over = c.interval ? " (95 % interval over " + plural(c.pairs.size(), "pair") + ")" : "";
  if (!gate) {
    if (!c.interval) return "the loss gap is " + gap;
    const bool outside = std::abs(*c.gap) > *c.interval;
    return "the loss gap is " + gap + over + ", which " + (outside ? "excludes" : "includes") + " 0";
  }
  const std::string limit = format_short(*gate, 4), of_gap = ": the loss gap of " + gap + over;
  switch (log::verdict(c, *gate)) {
    case log::Verdict::met:
      return style.green("gate met") + of_gap + " is within " + limit;
    case log::Verdict::not_met:
      return style.red("gate not met") + of_gap + " exceeds " + limit;
    case log::Verdict::cannot_tell:
      break;
  }
  return style.yellow("cannot tell") + of_gap + " is partly within " + limit + "; more pairs narrow the interval";
}

}  // namespace

std::string comparison(const PairedComparison& c, std::optional<double> gate, const cli::Style& style) {
  const bool one = c.pairs.size() == 1;
  return table(one ? rows_of(c.pairs.front()) : rows_of(c), style, one ? 1 : 2) + style.dim(matched_text(c)) + "\n" +
         settings_text(c, style) + (c.differences.empty() ? "" : "\n") + same_run_text(c) + noise_text(c) +
         verdict_text(c, gate, style) + "\n";
}

}  // namespace fp8::report
