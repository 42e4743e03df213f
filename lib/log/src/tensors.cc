// Reading of tensors.jsonl, its worst tensors, and their records and CSV.
#include "fp8/log/tensors.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "csv.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::log {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::string_view kTensorFile = "tensors.jsonl";
constexpr std::size_t kPiece = std::size_t{1} << 16U;  // bytes of CSV

std::string tensor_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  std::string file = (std::filesystem::path(path) / kTensorFile).string();
  if (!std::filesystem::exists(file, ignored))
    throw Error(path + ": contains no " + std::string(kTensorFile) + "; fp8-step --tensor-stats-every writes it");
  return file;
}

// The value of a figure in a record.
double figure(const json::Object& record, std::string_view metric) {
  const json::Value* v = record.find(metric);
  if (v == nullptr) return NAN;
  if (!v->is_null()) return record.get_double(metric, "record");
  const json::Value* nonfinite = record.find("nonfinite");
  if (metric != "sqnr_db") return NAN;
  return nonfinite != nullptr && nonfinite->is_int() && nonfinite->as_int() > 0 ? -kInfinity : kInfinity;
}

// Assembles records in order.
class Reader {
 public:
  void add(const json::Value& value) {
    if (!value.is_object()) throw Error("not an object");
    const json::Object& o = value.as_object();
    const std::string& type = o.get_string("type", "record");
    if (type != "operand" && type != "gemm") throw Error("no record of an operand or a GEMM");
    const std::int64_t step = o.get_int("step", "record");
    if (step < 1) throw Error("step " + std::to_string(step) + ": steps count from 1");
    const Key key{o.get_string("linear", "record"), o.get_string("gemm", "record"),
                  type == "operand" ? o.get_string("operand", "record") : ""};
    const auto known = numbers_.find(key);
    const bool again = !run_.steps.empty() && known != numbers_.end() && step == run_.steps.back() &&
                       !run_.series[known->second].at.empty() &&
                       run_.series[known->second].at.back() + 1 == run_.steps.size();
    const bool new_step = run_.steps.empty() || step != run_.steps.back() || again;
    if (cut_ && !new_step) throw Error(*cut_);
    cut_.reset();
    if (!run_.steps.empty() && (step < run_.steps.back() || again)) rewind(step);
    if (run_.steps.empty() || step > run_.steps.back()) run_.steps.push_back(step);
    TensorSeries& series = known != numbers_.end() ? run_.series[known->second] : add_series(key);
    series.recipe = o.get_string("recipe", "record");
    series.at.push_back(run_.steps.size() - 1);
    std::array<double, kTensorMetrics.size()>& values = series.values.emplace_back();
    for (std::size_t i = 0; i < values.size(); ++i) values.at(i) = figure(o, kTensorMetrics.at(i));
  }
  // A line is no JSON; `reason` says why.
  void damaged(const std::string& reason) {
    if (cut_) throw Error(*cut_);
    cut_ = reason;
  }
  TensorRun release() { return std::move(run_); }

 private:
  using Key = std::tuple<std::string, std::string, std::string>;

  TensorSeries& add_series(const Key& key) {
    numbers_[key] = run_.series.size();
    const auto& [linear, gemm, operand] = key;
    return run_.series.emplace_back(TensorSeries{linear, gemm, operand, {}, {}, {}});
  }
  // Removes the records from a step on.
  void rewind(std::int64_t step) {
    const auto keep = static_cast<std::size_t>(std::ranges::lower_bound(run_.steps, step) - run_.steps.begin());
    run_.steps.resize(keep);
    for (TensorSeries& s : run_.series) {
      const auto left = std::ranges::lower_bound(s.at, keep) - s.at.begin();
      s.at.resize(static_cast<std::size_t>(left));
      s.values.resize(static_cast<std::size_t>(left));
    }
  }

  TensorRun run_;
  std::map<Key, std::size_t> numbers_;  // numbers of series
  std::optional<std::string> cut_;      // why the last line is no JSON
};

// Whether a worse than b.
bool worse(std::size_t metric, double a, double b) { return kTensorMetrics.at(metric) == "sqnr_db" ? a < b : a > b; }

bool harmless(std::size_t metric, double v) { return kTensorMetrics.at(metric) == "sqnr_db" ? v == kInfinity : v == 0; }

std::optional<WorstTensor> worst_of(const TensorRun& run, const TensorSeries& series, std::size_t metric) {
  std::optional<WorstTensor> found;
  for (std::size_t i = 0; i < series.at.size(); ++i) {
    const double v = series.values[i].at(metric);
    if (std::isnan(v)) continue;
    if (!found || worse(metric, v, found->value)) found = {&series, v, run.steps[series.at[i]], v};
    found->last = v;
  }
  return found;
}

}  // namespace

TensorRun read_tensors(const std::string& path, const std::function<void(const std::string& path)>& waiting) {
  const bool piped = path == "-";
  const std::string name = piped ? "standard input" : tensor_file(path);
  std::optional<json::LineReader> lines;
  if (piped)
    lines.emplace(STDIN_FILENO, name);
  else
    lines.emplace(name, waiting);
  Reader reader;
  bool any = false;
  while (const auto text = lines->next_text()) {
    json::Value value;
    try {
      value = json::parse_line(*text, name, lines->line());
    } catch (const Error& e) {
      if (!any) throw;
      reader.damaged(std::string(e.what()).substr(name.size() + 2));
      continue;
    }
    try {
      reader.add(value);
    } catch (const Error& e) {
      const std::string reason = e.what();
      throw Error(name + ": " + (reason.starts_with("line ") ? "" : "line " + std::to_string(lines->line()) + ": ") +
                  reason);
    }
    any = true;
  }
  if (!any) throw Error(name + ": contains no statistics of tensors");
  TensorRun run = reader.release();
  run.path = path;
  return run;
}

std::size_t tensor_metric(std::string_view metric) {
  const auto* const at = std::ranges::find(kTensorMetrics, metric);
  if (at != kTensorMetrics.end()) return static_cast<std::size_t>(at - kTensorMetrics.begin());
  std::string list;
  for (const std::string_view name : kTensorMetrics) list += (list.empty() ? "" : ", ") + std::string(name);
  throw Error("no metric \"" + excerpt(metric) + "\" of tensors; available: " + list);
}

std::vector<WorstTensor> worst_tensors(const TensorRun& run, std::size_t metric) {
  std::vector<WorstTensor> all;
  for (const TensorSeries& series : run.series)
    if (const auto worst = worst_of(run, series, metric); worst && !harmless(metric, worst->value))
      all.push_back(*worst);
  std::ranges::stable_sort(all,
                           [&](const WorstTensor& a, const WorstTensor& b) { return worse(metric, a.value, b.value); });
  return all;
}

void write_tensor_csv(const TensorRun& run, const Sink& sink) {
  std::string piece = "step,linear,gemm,operand,recipe";
  for (const std::string_view metric : kTensorMetrics) piece += "," + std::string(metric);
  piece += "\n";
  std::vector<std::size_t> next(run.series.size());  // index of a series' first value that is not written
  for (std::size_t step = 0; step < run.steps.size(); ++step) {
    for (std::size_t s = 0; s < run.series.size(); ++s) {
      const TensorSeries& series = run.series[s];
      if (next[s] == series.at.size() || series.at[next[s]] != step) continue;
      piece += std::to_string(run.steps[step]);
      for (const std::string* text : {&series.linear, &series.gemm, &series.operand, &series.recipe})
        piece += "," + csv_text(*text);
      for (const double v : series.values[next[s]]) piece += "," + csv_number(v);
      piece += "\n";
      ++next[s];
      if (piece.size() < kPiece) continue;
      sink(piece);
      piece.clear();
    }
  }
  sink(piece);
}

std::vector<json::Value> tensor_records(const TensorRun& run) {
  std::vector<json::Value> records;
  for (const TensorSeries& series : run.series) {
    json::Value record =
        json::object({{"type", "tensor"},
                      {"linear", series.linear},
                      {"gemm", series.gemm},
                      {"operand", series.operand.empty() ? json::Value() : json::Value(series.operand)},
                      {"recipe", series.recipe},
                      {"steps", series.at.size()}});
    for (std::size_t metric = 0; metric < kTensorMetrics.size(); ++metric) {
      const auto worst = worst_of(run, series, metric);
      if (!worst) continue;
      const std::string name(kTensorMetrics.at(metric));
      record.as_object().set(name, worst->value);
      record.as_object().set(name + "_step", worst->step);
      if (name == "sqnr_db") record.as_object().set("finite", worst->value != -kInfinity);
    }
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace fp8::log
