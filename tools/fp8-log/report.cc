// Text summaries of runs.
#include "report.h"

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "fp8/base/characters.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
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

std::string count_or_dash(const std::optional<std::int64_t>& count) { return count ? std::to_string(*count) : "-"; }

// "2.2539 at 12"
std::string best_eval_text(const Summary& s) {
  return s.best_eval_loss ? loss_text(s.best_eval_loss) + " at " + count_or_dash(s.best_eval_step) : "-";
}

std::string best_checkpoint_text(const Summary& s) {
  return s.best_checkpoint ? "step " + std::to_string(*s.best_checkpoint) : "-";
}

// A line of the summary; omitted when its text is `boring` or "-" for every run.
struct Line {
  std::string label;
  std::function<std::string(const Summary&)> text;
  std::string boring;  // empty: always shown
};

std::vector<Line> lines_of_all_models() {
  return {{"precision", precision_text, ""},
          {"delayed scaling", delayed_text, "-"},
          {"changed", changes_text, "-"},
          {"steps", steps_text, ""},
          {"tokens", tokens_text, ""},
          {"mesh", [](const Summary& s) { return s.mesh.empty() ? "-" : terminal_safe(s.mesh); }, "1 rank"},
          {"documents", [](const Summary& s) { return s.documents.empty() ? "joined" : s.documents; }, "joined"},
          {"adapters (LoRA)", adapters_text, "-"},
          {"loss, last part", [](const Summary& s) { return loss_text(s.mean_loss_last); }, ""},
          {"final loss", [](const Summary& s) { return loss_text(s.final_loss); }, ""},
          {"best loss", [](const Summary& s) { return loss_text(s.best_loss); }, ""},
          {"evaluation loss", [](const Summary& s) { return loss_text(s.eval_loss); }, "-"},
          {"best evaluation loss", best_eval_text, "-"},
          {"best checkpoint", best_checkpoint_text, "-"},
          {"tokens/s, median", [](const Summary& s) { return count_text(s.tokens_per_s); }, "-"},
          {"tokens/s, 10 to 90 %", spread_text, "-"},
          {"waiting for data", [](const Summary& s) { return share_text(s.data_wait_share); }, "-"},
          {"peak memory", [](const Summary& s) { return bytes_text(s.memory_peak_bytes); }, "-"},
          {"sent in a step", [](const Summary& s) { return bytes_text(s.sent_bytes); }, "-"},
          {"linears in FP8", [](const Summary& s) { return share_text(s.fp8_flop_share); }, "-"},
          {"all FLOPs in FP8", [](const Summary& s) { return share_text(s.fp8_flop_share_total); }, "-"},
          {"linears in FP4", [](const Summary& s) { return share_text(s.fp4_flop_share); }, "-"},
          {"all FLOPs in FP4", [](const Summary& s) { return share_text(s.fp4_flop_share_total); }, "-"},
          {"steps skipped", [](const Summary& s) { return std::to_string(s.skipped); }, ""},
          {"steps without targets", [](const Summary& s) { return std::to_string(s.masked); }, "0"},
          {"checkpoints", [](const Summary& s) { return std::to_string(s.checkpoints); }, ""},
          {"restarts", [](const Summary& s) { return std::to_string(s.restarts); }, ""},
          {"warnings", [](const Summary& s) { return std::to_string(s.warnings); }, "0"},
          {"state", state_text, ""}};
}

std::vector<Line> lines() {
  std::vector<Line> experts;
  for (const ExpertFigure& f : kExpertFigures) {
    const std::string label = f.label;
    experts.push_back({label + (label.ends_with("loss") ? ", last part" : ""),
                       [&f](const Summary& s) { return expert_text(s, f); }, "-"});
  }
  std::vector<Line> all = lines_of_all_models();
  all.insert(std::ranges::find(all, "steps skipped", &Line::label), experts.begin(), experts.end());
  return all;
}

// Continues cells that are longer than `width` in rows below, from a blank on.
std::vector<Row> continued(Row row, std::size_t width) {
  std::vector<Row> rows;
  for (bool more = true; more;) {
    Row next(row.size());
    more = false;
    for (std::size_t c = 1; c < row.size(); ++c) {
      const std::size_t at = width_of(row[c]) > width ? row[c].rfind(' ', width) : std::string::npos;
      if (at == std::string::npos || at == 0) continue;
      next[c] = row[c].substr(at + 1);
      row[c].erase(at);
      more = true;
    }
    rows.push_back(std::move(row));
    row = std::move(next);
  }
  return rows;
}

std::vector<Row> summary_rows(std::span<const Summary> summaries, std::size_t columns) {
  constexpr std::size_t kLabel = 23;  // width of the longest label, and of the space behind it

  std::vector<Row> rows(1, Row{"run"});
  for (const Summary& s : summaries) rows[0].push_back(terminal_safe(s.name));
  for (const Line& line : lines()) {
    Row row{line.label};
    for (const Summary& s : summaries) row.push_back(line.text(s));
    if (line.boring.empty() ||
        std::any_of(row.begin() + 1, row.end(), [&](const std::string& t) { return t != line.boring && t != "-"; })) {
      for (Row& part : continued(std::move(row), columns - kLabel)) rows.push_back(std::move(part));
    }
    if (line.label != "precision") continue;
    std::vector<const Summary*> all;
    for (const Summary& s : summaries) all.push_back(&s);
    for (Row& phase : phase_rows(all)) rows.push_back(std::move(phase));
  }
  return rows;
}

// "rank 5 on node-3 waits least: ...", a line, of several runs behind the name of the run; empty without such a rank.
std::string slow_rank_line(const Summary& s, bool several) {
  return s.slow_rank ? terminal_safe((several ? s.name + ": " : "") + text_of(*s.slow_rank)) + "\n" : "";
}

// A column of the overview.
struct Column {
  std::string name;
  std::function<std::string(const log::OverviewRow&)> text;
  bool always = true;  // else only if the texts differ
};

std::vector<Column> columns_of(const log::Overview& all) {
  const auto needed = [](const log::OverviewRow& r) {  // also where all runs are alike
    return r.summary.phases.size() > 1 || r.summary.emulated.value_or(false);
  };
  std::vector<Column> columns = {{"run", [](const log::OverviewRow& r) { return terminal_safe(r.summary.name); }},
                                 {"precision", [](const log::OverviewRow& r) { return precision_text(r.summary); },
                                  std::ranges::any_of(all.rows, needed)}};
  for (std::size_t i = 0; i < all.settings.size(); ++i) {
    if (all.settings[i] == "precision" || all.settings[i] == "recipe") continue;  // in the column before
    if (all.settings[i] == "until-step") continue;                                // the ends of phases
    columns.push_back({terminal_safe(all.settings[i]), [i](const log::OverviewRow& r) {
                         return r.settings[i].empty() ? "-" : terminal_safe(r.settings[i]);
                       }});
  }
  columns.push_back({"steps done", [](const log::OverviewRow& r) { return steps_text(r.summary); }, false});
  columns.push_back({"loss", [](const log::OverviewRow& r) { return loss_text(r.summary.mean_loss_last); }});
  if (any_evaluated(all)) {
    columns.push_back({"eval loss", [](const log::OverviewRow& r) { return loss_text(r.summary.eval_loss); }});
    columns.push_back({"best", [](const log::OverviewRow& r) { return loss_text(r.summary.best_eval_loss); }});
    columns.push_back({"at step", [](const log::OverviewRow& r) { return count_or_dash(r.summary.best_eval_step); }});
  }
  const auto elsewhere = [](const log::OverviewRow& r) {
    return r.summary.best_checkpoint && r.summary.best_checkpoint != r.summary.best_eval_step;
  };
  if (std::ranges::any_of(all.rows, elsewhere)) {
    columns.push_back(
        {"best checkpoint", [](const log::OverviewRow& r) { return count_or_dash(r.summary.best_checkpoint); }});
  }
  if (all.has_baseline) {
    columns.push_back(
        {"gap", [](const log::OverviewRow& r) { return r.summary.path == r.baseline ? "baseline" : gap_text(r.gap); }});
  }
  for (const ExpertFigure& f : kExpertFigures) {
    if (std::ranges::any_of(all.rows, [&](const log::OverviewRow& r) { return (r.summary.*f.of).has_value(); }))
      columns.push_back({f.column, [&f](const log::OverviewRow& r) { return short_text(r.summary.*f.of); }});
  }
  columns.push_back({"tokens/s", [](const log::OverviewRow& r) { return count_text(r.summary.tokens_per_s); }});
  columns.push_back({"state", [](const log::OverviewRow& r) { return state_text(r.summary); }, false});
  return columns;
}

// The rows below a run: what changed at which step, under the headings of the columns.
std::vector<Row> change_rows(const log::Overview& all, const log::OverviewRow& run, const Row& heading) {
  std::map<std::int64_t, Row> rows;
  const auto set = [&](std::int64_t step, const std::string& column, const std::string& text) {
    const auto at = std::ranges::find(heading, column);
    if (at == heading.end() || text.empty()) return;
    Row& row = rows.try_emplace(step, Row(heading.size())).first->second;
    row.front() = "  from " + std::to_string(step);
    row[static_cast<std::size_t>(at - heading.begin())] = text;
  };
  for (std::size_t i = 1; i < run.summary.phases.size(); ++i)
    set(run.summary.phases[i].first, "precision", phase_text(run.summary.phases[i].second));
  for (const log::OverviewChange& change : run.changes) {
    for (std::size_t i = 0; i < change.settings.size(); ++i)
      if (all.settings[i] != "precision") set(change.step, all.settings[i], terminal_safe(change.settings[i]));
  }
  std::vector<Row> shown;
  for (auto& [step, row] : rows) {
    if (shown.size() < kMostPhases) {
      shown.push_back(std::move(row));
      continue;
    }
    if (shown.size() == kMostPhases) {
      shown.emplace_back(heading.size());
      shown.back().front() = "  and " + std::to_string(rows.size() - kMostPhases) + " more";
    }
    for (std::size_t c = 1; c < row.size(); ++c)  // in each part of the table that would have the others
      if (!row[c].empty()) shown.back()[c] = "...";
  }
  return shown;
}

}  // namespace

std::string summaries(std::span<const Summary> summaries, const Page& page) {
  std::string notes;
  for (const Summary& s : summaries) notes += slow_rank_line(s, summaries.size() > 1);
  return table(summary_rows(summaries, page.columns), page) + wrapped(notes, page);
}

std::string overview(const log::Overview& all, const Page& page) {
  std::vector<Row> rows(1 + all.rows.size());
  for (const Column& column : columns_of(all)) {
    std::vector<std::string> texts;
    for (const log::OverviewRow& r : all.rows) texts.push_back(column.text(r));
    if (!column.always && std::all_of(texts.begin(), texts.end(), [&](const auto& t) { return t == texts[0]; }))
      continue;
    rows[0].push_back(column.name);
    for (std::size_t i = 0; i < texts.size(); ++i) rows[i + 1].push_back(texts[i]);
  }
  std::vector<Row> shown{rows[0]};
  std::string notes;
  for (std::size_t i = 0; i < all.rows.size(); ++i) {
    shown.push_back(rows[i + 1]);
    for (Row& change : change_rows(all, all.rows[i], rows[0])) shown.push_back(std::move(change));
    notes += all.rows[i].without_gap.empty() ? "" : terminal_safe(all.rows[i].without_gap) + "\n";
    notes += slow_rank_line(all.rows[i].summary, true);
  }
  return table(shown, page) + wrapped(notes, page);
}

}  // namespace fp8::report
