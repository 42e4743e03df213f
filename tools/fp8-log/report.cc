// Text summaries of runs.
#include "report.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "cells.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::report {
namespace {

using log::Summary;

std::string spread_text(const Summary& s) {
  if (!s.tokens_per_s_p10 || !s.tokens_per_s_p90) return "-";
  return count_text(s.tokens_per_s_p10) + " to " + count_text(s.tokens_per_s_p90);
}

std::string state_text(const Summary& s) {
  if (!s.finished) return "no end record";
  return s.reason.empty() ? "ended" : terminal_safe(s.reason);
}

// The settings that resumed starts changed, without those that the row of the precision shows.
std::string changes_text(const Summary& s) {
  constexpr std::size_t kDigits = 8, kMost = 200;
  const auto value = [](const log::Change& change, const json::Value& v) {
    if (v.is_null()) return std::string("not set");
    if (!v.is_string()) return json::dump(v);
    return change.name == "data" ? v.as_string().substr(0, kDigits) : v.as_string();
  };
  std::string text;
  std::int64_t last = -1;
  for (const auto& [step, change] : s.changes) {
    if (change.name == "precision" || change.name == "recipe") continue;
    if (step != last) text += (text.empty() ? "from step " : "; from step ") + std::to_string(step) + ":";
    if (step == last) text += ",";
    text += " " + change.name + " " + value(change, change.old) + " to " + value(change, change.now);
    last = step;
  }
  return text.empty() ? "-" : terminal_safe(excerpt(text, kMost));
}

std::string tokens_text(const Summary& s) {
  return s.tokens ? human_count(static_cast<std::uint64_t>(*s.tokens)) : "-";
}

std::string adapters_text(const Summary& s) { return s.adapters.empty() ? "-" : terminal_safe(s.adapters); }

std::string delayed_text(const Summary& s) { return s.delayed.empty() ? "-" : terminal_safe(s.delayed); }

// A line of the summary; omitted when its text is `boring` for every run.
struct Line {
  std::string label;
  std::function<std::string(const Summary&)> text;
  std::string boring;  // empty: always shown
};

std::vector<Line> lines() {
  return {{"precision", precision_text, ""},
          {"delayed scaling", delayed_text, "-"},
          {"changed", changes_text, "-"},
          {"steps", steps_text, ""},
          {"tokens", tokens_text, ""},
          {"documents", [](const Summary& s) { return s.documents.empty() ? "joined" : s.documents; }, "joined"},
          {"adapters (LoRA)", adapters_text, "-"},
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
          {"steps without targets", [](const Summary& s) { return std::to_string(s.masked); }, "0"},
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

std::string overview(const log::Overview& all, const cli::Style& style) {
  struct Column {
    std::string name;
    std::function<std::string(const log::OverviewRow&)> text;
    bool always;  // else only if the texts differ
  };
  std::vector<Column> columns = {
      {"run", [](const log::OverviewRow& r) { return terminal_safe(r.summary.name); }, true},
      {"precision", [](const log::OverviewRow& r) { return precision_text(r.summary); }, false}};
  for (std::size_t i = 0; i < all.settings.size(); ++i) {
    if (all.settings[i] == "precision" || all.settings[i] == "recipe") continue;  // in the column before
    const auto text = [i](const log::OverviewRow& r) {
      return r.settings[i].empty() ? "-" : terminal_safe(r.settings[i]);
    };
    columns.push_back({terminal_safe(all.settings[i]), text, true});
  }
  const auto gap = [&](const log::OverviewRow& r) {
    return r.summary.path == r.baseline ? "baseline" : gap_text(r.gap);
  };
  columns.push_back({"steps done", [](const log::OverviewRow& r) { return steps_text(r.summary); }, false});
  columns.push_back({"loss", [](const log::OverviewRow& r) { return loss_text(r.summary.mean_loss_last); }, true});
  if (all.has_baseline) columns.push_back({"gap", gap, true});
  columns.push_back({"tokens/s", [](const log::OverviewRow& r) { return count_text(r.summary.tokens_per_s); }, true});
  columns.push_back({"state", [](const log::OverviewRow& r) { return state_text(r.summary); }, false});
  std::vector<Row> rows(1 + all.rows.size());
  for (const Column& column : columns) {
    std::vector<std::string> texts;
    for (const log::OverviewRow& r : all.rows) texts.push_back(column.text(r));
    if (!column.always && std::all_of(texts.begin(), texts.end(), [&](const auto& t) { return t == texts[0]; }))
      continue;
    rows[0].push_back(column.name);
    for (std::size_t i = 0; i < texts.size(); ++i) rows[i + 1].push_back(texts[i]);
  }
  std::string notes;
  for (const log::OverviewRow& r : all.rows) notes += r.without_gap.empty() ? "" : terminal_safe(r.without_gap) + "\n";
  return table(rows, style) + notes;
}

}  // namespace fp8::report
