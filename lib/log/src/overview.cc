// Rows of many runs.
#include "fp8/log/overview.h"

#include <algorithm>
#include <functional>
#include <map>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/log/compare.h"

namespace fp8::log {
namespace {

// The sort key of a row: a number, else a text; neither if the value is missing.
struct SortKey {
  std::optional<double> number{};
  std::string text{};

  int rank() const { return number ? 0 : text.empty() ? 2 : 1; }
};

SortKey key_of(const std::optional<double>& number) { return {number, ""}; }

SortKey key_of(const std::string& text) { return {parse_double(text), text}; }

using SortColumn = std::pair<std::string, std::function<SortKey(const OverviewRow&)>>;

std::vector<SortColumn> columns_of(const Overview& overview) {
  std::vector<SortColumn> columns = {
      {"run",
       [](const OverviewRow& r) {
         return SortKey{std::nullopt, r.summary.name};
       }},
      {"loss", [](const OverviewRow& r) { return key_of(r.summary.mean_loss_last); }},
      {"eval", [](const OverviewRow& r) { return key_of(r.summary.eval_loss); }},
      {"eval_loss", [](const OverviewRow& r) { return key_of(r.summary.eval_loss); }},
      {"best_eval", [](const OverviewRow& r) { return key_of(r.summary.best_eval_loss); }},
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

// Whether different values of a setting have different texts without digests: models or data with the same file name do
// not.
bool names_suffice(std::span<const Run> runs, const std::string& name) {
  std::map<std::string, std::string> with_digest;
  for (const Run& run : runs) {
    const auto names = setting_texts(run, name, false), all = setting_texts(run, name, true);
    for (std::size_t i = 0; i < names.size(); ++i)
      if (with_digest.try_emplace(names[i].second, all[i].second).first->second != all[i].second) return false;
  }
  return true;
}

// The change at a step; inserted if there is none.
OverviewChange& change_at(std::vector<OverviewChange>& changes, std::int64_t step, std::size_t settings) {
  const auto at = std::ranges::lower_bound(changes, step, {}, &OverviewChange::step);
  if (at != changes.end() && at->step == step) return *at;
  return *changes.insert(at, {step, std::vector<std::string>(settings)});
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
  for (std::size_t k = 0; k < all.settings.size(); ++k) {
    const bool by_name = names_suffice(runs_, all.settings[k]);
    for (std::size_t i = 0; i < all.rows.size(); ++i) {
      OverviewRow& row = all.rows[i];
      const auto texts = setting_texts(runs_[i], all.settings[k], !by_name);
      row.settings.push_back(texts.empty() ? "" : texts.front().second);
      for (std::size_t n = 1; n < texts.size(); ++n)
        change_at(row.changes, texts[n].first, all.settings.size()).settings[k] = texts[n].second;
    }
  }
  for (std::size_t i = 0; i < all.rows.size(); ++i) all.rows[i].values = setting_values(runs_[i]);
  return all;
}

bool any_evaluated(const Overview& overview) {
  return std::ranges::any_of(overview.rows, [](const OverviewRow& r) { return r.summary.eval_loss.has_value(); });
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
    const SortKey x = at->second(a), y = at->second(b);
    if (x.rank() != y.rank()) return x.rank() < y.rank();
    const SortKey &first = down ? y : x, &second = down ? x : y;
    return first.number ? *first.number < *second.number : first.text < second.text;
  });
}

json::Value record(const Overview& overview, const OverviewRow& row) {
  json::Value v = record(row.summary);
  v.as_object().set("settings", row.values);
  json::Array differing;
  for (const std::string& name : overview.settings) differing.emplace_back(name);
  if (overview.rows.size() > 1) v.as_object().set("differing", std::move(differing));
  if (overview.has_baseline) {
    v.as_object().set("gap", row.gap ? json::Value(*row.gap) : json::Value());
    v.as_object().set("baseline", row.baseline.empty() ? json::Value() : json::Value(row.baseline));
  }
  return v;
}

}  // namespace fp8::log
