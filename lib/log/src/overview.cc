// Rows of many runs.
#include "fp8/log/overview.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/log/compare.h"

namespace fp8::log {
namespace {

// The sort key of a row: a number, else a text; neither if the value is missing.
struct Key {
  std::optional<double> number{};
  std::string text{};

  int rank() const { return number ? 0 : text.empty() ? 2 : 1; }
};

Key key_of(const std::optional<double>& number) { return {number, ""}; }

Key key_of(const std::string& text) { return {parse_double(text), text}; }

using SortColumn = std::pair<std::string, std::function<Key(const OverviewRow&)>>;

std::vector<SortColumn> columns_of(const Overview& overview) {
  std::vector<SortColumn> columns = {
      {"run",
       [](const OverviewRow& r) {
         return Key{std::nullopt, r.summary.name};
       }},
      {"loss", [](const OverviewRow& r) { return key_of(r.summary.mean_loss_last); }},
      {"eval_loss", [](const OverviewRow& r) { return key_of(r.summary.eval_loss); }},
      {"gap", [](const OverviewRow& r) { return key_of(r.gap); }},
      {"tokens_per_s", [](const OverviewRow& r) { return key_of(r.summary.tokens_per_s); }},
      {"steps", [](const OverviewRow& r) { return key_of(static_cast<double>(r.summary.steps)); }},
      {"precision", [](const OverviewRow& r) { return key_of(r.summary.precision); }},
      {"recipe", [](const OverviewRow& r) { return key_of(r.summary.recipe); }}};
  for (std::size_t i = 0; i < overview.settings.size(); ++i) {
    columns.emplace_back(overview.settings[i], [i](const OverviewRow& r) { return key_of(r.settings[i]); });
  }
  return columns;
}

}  // namespace

void OverviewBuilder::add(const Run& run, const std::string& name, std::span<const Run> baselines) {
  OverviewRow row;
  row.summary = summarize(run);
  row.summary.name = name;
  for (const Run& baseline : baselines) check_comparable(baseline);
  if (!baselines.empty()) {
    has_baseline_ = true;
    try {
      const Run& baseline = baselines[partner_of(run, baselines)];
      row.baseline = baseline.path;
      row.gap = compare(baseline, run).gap;
    } catch (const Error& e) {
      row.without_gap = e.what();
    }
  }
  rows_.push_back(std::move(row));
  Run& kept = runs_.emplace_back();
  kept.settings = run.settings;
}

Overview OverviewBuilder::finish() const {
  Overview all{.settings = differing_settings(runs_), .has_baseline = has_baseline_, .rows = rows_};
  for (std::size_t i = 0; i < all.rows.size(); ++i) {
    for (const std::string& name : all.settings) {
      all.rows[i].settings.push_back(setting_text(runs_[i], name).value_or(""));
      all.rows[i].values.push_back(setting_value(runs_[i], name));
    }
  }
  return all;
}

void sort_rows(Overview& overview, const std::string& name) {
  const bool down = name.starts_with('-');
  const std::string wanted = down ? name.substr(1) : name;
  const std::vector<SortColumn> columns = columns_of(overview);
  const auto at = std::find_if(columns.begin(), columns.end(), [&](const SortColumn& c) { return c.first == wanted; });
  if (at == columns.end()) {
    std::string names;
    for (const SortColumn& c : columns) names += (names.empty() ? "" : ", ") + excerpt(c.first);
    throw Error("no column \"" + excerpt(wanted) + "\" to sort by; available: " + names);
  }
  std::stable_sort(overview.rows.begin(), overview.rows.end(), [&](const OverviewRow& a, const OverviewRow& b) {
    const Key x = at->second(a), y = at->second(b);
    if (x.rank() != y.rank()) return x.rank() < y.rank();
    const Key &first = down ? y : x, &second = down ? x : y;
    return first.number ? *first.number < *second.number : first.text < second.text;
  });
}

json::Value record(const Overview& overview, const OverviewRow& row) {
  json::Value v = record(row.summary);
  json::Object settings;
  for (std::size_t i = 0; i < overview.settings.size(); ++i) settings.set(overview.settings[i], row.values[i]);
  if (overview.rows.size() > 1) v.as_object().set("settings", std::move(settings));
  if (overview.has_baseline) {
    v.as_object().set("gap", row.gap ? json::Value(*row.gap) : json::Value());
    v.as_object().set("baseline", row.baseline.empty() ? json::Value() : json::Value(row.baseline));
  }
  return v;
}

}  // namespace fp8::log
