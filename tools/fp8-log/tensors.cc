#include "tensors.h"

#include <array>
#include <cmath>
#include <limits>

#include "cells.h"
#include "fp8/base/expert_name.h"
#include "fp8/base/text.h"

namespace fp8::report {
namespace {

struct Table {
  std::string_view metric;
  std::string_view heading;  // heading of the values
  double factor;
  std::string_view none;  // if no series is listed
};

constexpr std::array<Table, 4> kTables = {{{"sqnr_db", "lowest SQNR, dB", 1, "every cast is exact"},
                                           {"underflow_share", "most underflow, %", 100, "nothing underflows"},
                                           {"saturated_share", "most saturation, %", 100, "nothing saturates"},
                                           {"relative_error", "largest error, %", 100, "every product is exact"}}};

std::string value_text(double v, const Table& table) {
  if (std::isfinite(v)) return format_short(table.factor * v, 4);
  return table.metric == "sqnr_db" && v < 0 ? "not finite" : "-";
}

// The whole names of linears if they fit on the page, else what tells them apart.
std::vector<Row> named_rows(std::vector<Row> rows, const Page& page, std::size_t left) {
  if (fits(rows, page, left)) return rows;
  for (auto row = rows.begin() + 1; row != rows.end(); ++row) row->front() = brief_name(row->front());
  return rows;
}

std::string table_of(const log::TensorRun& run, const Table& t, std::size_t top, const Page& page) {
  const std::size_t metric = log::tensor_metric(t.metric);
  std::vector<log::WorstTensor> worst = log::worst_tensors(run, metric);
  if (worst.empty()) return std::string(t.none) + "\n";
  const bool products = worst.front().series->operand.empty();
  const bool experts = fold_experts(worst, [](const log::WorstTensor& w) {
    return std::array{w.series->linear, w.gemms, w.series->operand, w.series->recipe};
  });
  const bool recipes = log::recipes_of(run).size() > 1, steps = run.steps.size() > 1;
  std::vector<Row> rows{{"linear"}};
  if (experts) rows.front().emplace_back("expert");
  rows.front().emplace_back("gemm");
  if (!products) rows.front().emplace_back("operand");
  if (recipes) rows.front().emplace_back("recipe");
  rows.front().emplace_back(t.heading);
  if (steps) rows.front().insert(rows.front().end(), {"at step", "last"});
  for (const log::WorstTensor& w : worst) {
    if (rows.size() > top) break;
    Row row{terminal_safe(glob_of_experts(w.series->linear))};
    const std::optional<ExpertName> expert = expert_name(w.series->linear);
    if (experts) row.push_back(expert ? std::to_string(expert->number) : "-");
    row.push_back(terminal_safe(w.gemms));
    if (!products) row.push_back(terminal_safe(w.series->operand));
    if (recipes) row.push_back(terminal_safe(w.series->recipe));
    row.push_back(value_text(w.value, t));
    if (steps) row.insert(row.end(), {std::to_string(w.step), value_text(w.last, t)});
    rows.push_back(std::move(row));
  }
  const std::size_t left = (products ? 2u : 3u) + (recipes ? 1 : 0) + (experts ? 1 : 0);
  return table(named_rows(std::move(rows), page, left), page, left);
}

// The layers with experts, by their largest loads.
std::string table_of_loads(const log::TensorRun& run, std::size_t top, const Page& page) {
  const bool steps = run.steps.size() > 1;
  std::vector<Row> rows{{"layer", "expert", "largest load"}};
  if (steps) rows.front().insert(rows.front().end(), {"at step", "last"});
  rows.front().emplace_back("idle experts");
  for (const log::WorstLoad& w : log::worst_loads(run)) {
    if (rows.size() > top) break;
    Row row{std::to_string(w.layer), std::to_string(w.expert), format_short(w.load, 4)};
    if (steps) row.insert(row.end(), {std::to_string(w.step), format_short(w.last, 4)});
    row.push_back(std::to_string(w.idle) + " of " + std::to_string(w.experts));
    rows.push_back(std::move(row));
  }
  return table(rows, page, 2);
}

// The layers with experts, by the tokens that other experts get.
std::string table_of_routes(const log::TensorRun& run, std::size_t top, const Page& page) {
  std::vector<Row> rows{{"layer", "recipe", "reference", "tokens differ, %", "experts differ, %", "tokens"}};
  const auto percent = [](double share) { return std::isnan(share) ? "-" : format_short(100 * share, 4); };
  for (const log::RouteShares& r : log::worst_routes(run)) {
    if (rows.size() > top) break;
    rows.push_back({std::to_string(r.layer), terminal_safe(r.recipe), terminal_safe(r.reference), percent(r.differ),
                    percent(r.experts_differ), std::to_string(r.tokens)});
  }
  return table(rows, page, 3);
}

}  // namespace

std::string tensors(const log::TensorRun& run, std::size_t top, Page page) {
  if (!page.wraps_text) page.columns = std::numeric_limits<std::size_t>::max();  // no terminal: nothing is cut
  std::size_t records = run.routes.size();
  for (const log::TensorSeries& s : run.series) records += s.at.size();
  for (const log::LayerLoads& l : run.experts) records += l.at.size();
  std::string text;
  if (run.steps.size() == 1)
    text = "step " + std::to_string(run.steps.front()) + ", ";
  else if (!run.steps.empty())
    text = std::to_string(run.steps.size()) + " steps, " + std::to_string(run.steps.front()) + " to " +
           std::to_string(run.steps.back()) + ", ";
  text += std::to_string(records) + (records == 1 ? " record\n" : " records\n");
  for (const Table& t : kTables)
    if (!run.series.empty()) text += "\n" + table_of(run, t, top, page);
  if (!run.experts.empty()) text += "\n" + table_of_loads(run, top, page);
  if (!run.routes.empty()) text += "\n" + table_of_routes(run, top, page);
  return text;
}

}  // namespace fp8::report
