// Reading of tensors.jsonl, its worst tensors, and their records and CSV.
#include "fp8/log/tensors.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <numbers>
#include <optional>
#include <tuple>

#include "casts.h"
#include "csv.h"
#include "export_piece.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::log {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::string_view kTensorFile = "tensors.jsonl";

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

// The scaled exponents of an operand; none for a product.
ExponentCounts exponents_of(const json::Object& record) {
  constexpr const char* kHistogram = "scaled_histogram";
  constexpr std::int64_t kMost = 1100;  // more than the exponents of f64
  const json::Value* v = record.find(kHistogram);
  if (v == nullptr || !v->is_object()) return {};
  ExponentCounts e{v->as_object().get_int_or("lowest", 0, kHistogram), {}};
  const json::Array& counts = v->as_object().get_array("counts", kHistogram);
  if (e.lowest < -kMost || e.lowest > kMost || std::ssize(counts) > kMost - e.lowest)
    throw Error(std::string(kHistogram) + ": exponents beyond +-" + std::to_string(kMost));
  for (const json::Value& count : counts) {
    if (!count.is_int() || count.as_int() < 0)
      throw Error(std::string(kHistogram) + ": \"counts\": not whole numbers from 0");
    e.counts.push_back(count.as_double());
  }
  return e;
}

bool is_statistic(std::string_view type) { return type == "operand" || type == "gemm"; }

// The number of the layer of a record.
std::int64_t layer_of(const json::Object& record) {
  const std::int64_t layer = record.get_int("layer", "record");
  if (layer < 0) throw Error("layer " + std::to_string(layer) + ": layers count from 0");
  return layer;
}

// The loads in a record of experts.
std::vector<double> loads_of(const json::Object& record) {
  std::vector<double> loads;
  double sum = 0;
  for (const json::Value& rows : record.get_array("rows", "record")) {
    if (!rows.is_int() || rows.as_int() < 0) throw Error("record: \"rows\": not whole numbers from 0");
    loads.push_back(rows.as_double());
    sum += loads.back();
  }
  if (!(sum > 0)) throw Error("record: \"rows\": no expert has any");
  for (double& load : loads) load *= static_cast<double>(loads.size()) / sum;
  return loads;
}

// Whether fp8-inspect writes records of this type among those of operands and GEMMs.
bool is_beside(std::string_view type) { return type == "sensitivity" || type == "group" || type == "recommendation"; }

// Assembles records in order.
class Reader {
 public:
  void add(const json::Value& value) {
    if (!value.is_object()) throw Error("not an object");
    const json::Object& o = value.as_object();
    const std::string& type = o.get_string("type", "record");
    if (type == "inspect") return begin_inspection(o);
    if (type == "routes") return add_routes(o);
    if (run_.inspection && is_beside(type)) return;
    if (type == "experts") return add_experts(o);
    if (!is_statistic(type)) throw Error("no record of an operand, a GEMM, experts or routes");
    const bool inspected = run_.inspection && o.find("step") == nullptr;
    const std::int64_t step = inspected ? inspected_step_ : o.get_int("step", "record");
    const Key key{o.get_string("linear", "record"), o.get_string("gemm", "record"),
                  type == "operand" ? o.get_string("operand", "record") : "",
                  inspected ? o.get_string("recipe", "record") : ""};
    const auto known = numbers_.find(key);
    begin_record(step, known != numbers_.end() ? &run_.series[known->second].at : nullptr);
    TensorSeries& series = known != numbers_.end() ? run_.series[known->second] : add_series(key);
    series.recipe = o.get_string("recipe", "record");
    series.format = o.get_string_or("format", "", "record");
    series.ideal.push_back(ideal_sqnr_db(series.format));
    if (!series.format.empty() && std::isnan(series.ideal.back())) add_unknown(series.format);
    series.exponents = exponents_of(o);
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
  using Key = std::tuple<std::string, std::string, std::string, std::string>;  // the last: recipe of an inspection

  void begin_inspection(const json::Object& o) {
    run_.inspection = true;
    inspected_step_ = o.get_int("step", "record");
  }

  void add_experts(const json::Object& o) {
    const std::int64_t layer = layer_of(o);
    std::vector<double> loads = loads_of(o);
    const auto known = std::ranges::find(run_.experts, layer, &LayerLoads::layer);
    begin_record(o.get_int("step", "record"), known != run_.experts.end() ? &known->at : nullptr);
    LayerLoads& of_layer =
        known != run_.experts.end() ? *known : run_.experts.emplace_back(LayerLoads{layer, {}, {}, {}});
    of_layer.module = o.get_string("module", "record");
    if (!of_layer.loads.empty() && of_layer.loads.back().size() != loads.size())
      throw Error("record: \"rows\": " + std::to_string(loads.size()) + " experts, " +
                  std::to_string(of_layer.loads.back().size()) + " before");
    of_layer.at.push_back(run_.steps.size() - 1);
    of_layer.loads.push_back(std::move(loads));
  }

  // Routes belong to an inspection, and those of bf16 come before its first record. A repeated record replaces the
  // former.
  void add_routes(const json::Object& o) {
    const auto share = [&](const char* key) {
      const double value = o.get_double_or(key, NAN, "record");
      if (value < 0 || value > 1) throw Error("record: \"" + std::string(key) + "\": not a share from 0 to 1");
      return value;
    };
    const RouteShares routes{layer_of(o),
                             o.get_string("recipe", "record"),
                             o.get_string("reference", "record"),
                             o.get_int("tokens", "record"),
                             share("differ"),
                             share("experts_differ")};
    const auto known = std::ranges::find_if(
        run_.routes, [&](const RouteShares& r) { return r.layer == routes.layer && r.recipe == routes.recipe; });
    if (known == run_.routes.end())
      run_.routes.push_back(routes);
    else
      *known = routes;
  }

  // Begins the record of a step, whose series has records of the steps `at` so far; null: none.
  void begin_record(std::int64_t step, const std::vector<std::size_t>* at) {
    if (step < 1) throw Error("step " + std::to_string(step) + ": steps count from 1");
    const bool again = !run_.steps.empty() && step == run_.steps.back() && at != nullptr && !at->empty() &&
                       at->back() + 1 == run_.steps.size();
    const bool new_step = run_.steps.empty() || step != run_.steps.back() || again;
    if (cut_ && !new_step) throw Error(*cut_);
    cut_.reset();
    if (!run_.steps.empty() && (step < run_.steps.back() || again)) rewind(step);
    if (run_.steps.empty() || step > run_.steps.back()) run_.steps.push_back(step);
  }

  TensorSeries& add_series(const Key& key) {
    numbers_[key] = run_.series.size();
    TensorSeries& series = run_.series.emplace_back();
    std::tie(series.linear, series.gemm, series.operand, series.recipe) = key;
    return series;
  }
  void add_unknown(const std::string& format) {
    constexpr std::size_t kMost = 4;
    std::vector<std::string>& known = run_.unknown_formats;
    if (known.size() < kMost && std::ranges::find(known, format) == known.end()) known.push_back(format);
  }
  // Removes the records from a step on.
  void rewind(std::int64_t step) {
    const auto keep = static_cast<std::size_t>(std::ranges::lower_bound(run_.steps, step) - run_.steps.begin());
    run_.steps.resize(keep);
    for (TensorSeries& s : run_.series) {
      const auto left = std::ranges::lower_bound(s.at, keep) - s.at.begin();
      s.at.resize(static_cast<std::size_t>(left));
      s.values.resize(static_cast<std::size_t>(left));
      s.ideal.resize(static_cast<std::size_t>(left));
    }
    for (LayerLoads& l : run_.experts) {
      const auto left = std::ranges::lower_bound(l.at, keep) - l.at.begin();
      l.at.resize(static_cast<std::size_t>(left));
      l.loads.resize(static_cast<std::size_t>(left));
    }
  }

  TensorRun run_;
  std::map<Key, std::size_t> numbers_;  // of series
  std::int64_t inspected_step_ = 0;     // of the records of an inspection, which have none
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
    if (!found || worse(metric, v, found->value)) found = {&series, series.gemm, v, run.steps[series.at[i]], v};
    found->last = v;
  }
  return found;
}

// Whether two series are of one cast: every figure of every step is equal.
bool same_cast(const TensorSeries& a, const TensorSeries& b) {
  const auto equal = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return !a.operand.empty() && a.linear == b.linear && a.operand == b.operand && a.recipe == b.recipe &&
         a.format == b.format && a.at == b.at &&
         std::ranges::equal(a.values, b.values,
                            [&](const auto& x, const auto& y) { return std::ranges::equal(x, y, equal); });
}

}  // namespace

double ideal_sqnr_db(std::string_view format) {
  if (format != "e4m3" && format != "e5m2") return NAN;
  return 10 * std::log10(32 * std::numbers::ln2 * std::pow(4, format == "e4m3" ? 3 : 2));
}

std::string unknown_formats(const TensorRun& run) {
  std::string list;
  for (const std::string& name : run.unknown_formats) list += (list.empty() ? "" : ", ") + excerpt(name);
  if (list.empty()) return "";
  return (run.unknown_formats.size() == 1 ? "unknown format: " : "unknown formats: ") + list;
}

std::vector<std::string> recipes_of(const TensorRun& run) {
  std::vector<std::string> names;
  if (run.inspection)
    for (const TensorSeries& s : run.series)
      if (std::ranges::find(names, s.recipe) == names.end()) names.push_back(s.recipe);
  return names;
}

std::vector<CastSeries> casts_of(const TensorRun& run) {
  std::vector<CastSeries> casts;
  std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> known;  // by linear and operand
  for (const TensorSeries& series : run.series) {
    std::vector<std::size_t>& same = known[{series.linear, series.operand}];
    const auto at = std::ranges::find_if(same, [&](std::size_t i) { return same_cast(*casts[i].series, series); });
    if (at != same.end()) {
      casts[*at].gemms += "," + series.gemm;
      continue;
    }
    same.push_back(casts.size());
    casts.push_back({&series, series.gemm});
  }
  return casts;
}

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
  TensorRun run = reader.release();
  if (run.series.empty() && run.experts.empty() && run.routes.empty())
    throw Error(name + ": contains no statistics of tensors");
  run.path = path;
  return run;
}

std::size_t tensor_metric(std::string_view metric) {
  const auto* const at = std::ranges::find(kTensorMetrics, metric);
  if (at != kTensorMetrics.end()) return static_cast<std::size_t>(at - kTensorMetrics.begin());
  std::string list;
  for (const std::string_view name : kTensorMetrics) list += (list.empty() ? "" : ", ") + std::string(name);
  throw Error("no metric \"" + excerpt(metric) + "\" of tensors; available: " + list + ", " + std::string(kExponents) +
              ", " + std::string(kExpertLoad) + ", " + std::string(kDiffer));
}

std::vector<WorstTensor> worst_tensors(const TensorRun& run, std::size_t metric) {
  std::vector<WorstTensor> all;
  for (const CastSeries& cast : casts_of(run)) {
    auto worst = worst_of(run, *cast.series, metric);
    if (!worst || harmless(metric, worst->value)) continue;
    worst->gemms = cast.gemms;
    all.push_back(*worst);
  }
  std::ranges::stable_sort(all,
                           [&](const WorstTensor& a, const WorstTensor& b) { return worse(metric, a.value, b.value); });
  return all;
}

std::vector<WorstLoad> worst_loads(const TensorRun& run) {
  std::vector<WorstLoad> all;
  for (const LayerLoads& l : run.experts) {
    if (l.at.empty()) continue;
    WorstLoad worst{.layer = l.layer, .experts = std::ssize(l.loads.back())};
    for (std::size_t i = 0; i < l.at.size(); ++i) {
      const auto most = std::ranges::max_element(l.loads[i]);
      worst.last = *most;
      if (*most <= worst.load) continue;
      worst.load = *most;
      worst.expert = static_cast<std::size_t>(most - l.loads[i].begin());
      worst.step = run.steps[l.at[i]];
    }
    worst.idle = std::ranges::count(l.loads.back(), 0.0);
    all.push_back(worst);
  }
  std::ranges::stable_sort(all, std::ranges::greater(), &WorstLoad::load);
  return all;
}

std::vector<RouteShares> worst_routes(const TensorRun& run) {
  std::vector<RouteShares> routes = run.routes;
  std::ranges::stable_sort(routes, std::ranges::greater(),
                           [](const RouteShares& r) { return std::isnan(r.differ) ? -1 : r.differ; });
  return routes;
}

namespace {

// Appends the lines of CSV of the experts at a step.
void add_expert_lines(const TensorRun& run, std::size_t step, std::string& text) {
  for (const LayerLoads& l : run.experts) {
    const auto at = std::ranges::lower_bound(l.at, step);
    if (at == l.at.end() || *at != step) continue;
    const std::vector<double>& loads = l.loads[static_cast<std::size_t>(at - l.at.begin())];
    for (std::size_t e = 0; e < loads.size(); ++e)
      text += std::to_string(run.steps[step]) + "," + csv_text(l.module + "." + std::to_string(e)) + ",,," +
              std::string(kTensorMetrics.size(), ',') + "," + csv_number(loads[e]) + (run.routes.empty() ? "" : ",,") +
              "\n";
  }
}

// Appends the lines of routes to a CSV. They have no step, unless the records of an inspection are there.
void add_route_lines(const TensorRun& run, std::string& text) {
  for (const RouteShares& r : run.routes)
    text += (run.steps.empty() ? "" : std::to_string(run.steps.back())) + ",model.layers." + std::to_string(r.layer) +
            ",,," + csv_text(r.recipe) + std::string(kTensorMetrics.size(), ',') + (run.experts.empty() ? "," : ",,") +
            csv_number(r.differ) + "," + csv_number(r.experts_differ) + "\n";
}

}  // namespace

void write_tensor_csv(const TensorRun& run, const Sink& sink) {
  const bool experts = !run.experts.empty(), routes = !run.routes.empty();
  const std::string rest = std::string(experts ? "," : "") + (routes ? ",,\n" : "\n");  // of a line of a tensor
  std::string piece = "step,linear,gemm,operand,recipe";
  for (const std::string_view metric : kTensorMetrics) piece += "," + std::string(metric);
  if (experts) piece += "," + std::string(kExpertLoad);
  piece += routes ? "," + std::string(kDiffer) + ",experts_differ\n" : "\n";
  std::vector<std::size_t> next(run.series.size());  // index of a series' first value that is not written
  for (std::size_t step = 0; step < run.steps.size(); ++step) {
    for (std::size_t s = 0; s < run.series.size(); ++s) {
      const TensorSeries& series = run.series[s];
      if (next[s] == series.at.size() || series.at[next[s]] != step) continue;
      piece += std::to_string(run.steps[step]);
      for (const std::string* text : {&series.linear, &series.gemm, &series.operand, &series.recipe})
        piece += "," + csv_text(*text);
      for (const double v : series.values[next[s]]) piece += "," + csv_number(v);
      piece += rest;
      ++next[s];
      if (piece.size() < kExportPiece) continue;
      sink(piece);
      piece.clear();
    }
    add_expert_lines(run, step, piece);
  }
  add_route_lines(run, piece);
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
  for (const WorstLoad& w : worst_loads(run)) {
    const auto at = std::ranges::find(run.experts, w.layer, &LayerLoads::layer);
    records.push_back(json::object({{"type", "experts"},
                                    {"layer", w.layer},
                                    {"experts", w.experts},
                                    {"steps", at->at.size()},
                                    {"load_max", w.load},
                                    {"load_max_expert", w.expert},
                                    {"load_max_step", w.step},
                                    {"last_load_max", w.last},
                                    {"last_idle", w.idle}}));
  }
  for (const RouteShares& r : run.routes)
    records.push_back(json::object({{"type", "routes"},
                                    {"recipe", r.recipe},
                                    {"reference", r.reference},
                                    {"layer", r.layer},
                                    {"tokens", r.tokens},
                                    {"differ", r.differ},
                                    {"experts_differ", r.experts_differ}}));
  return records;
}

}  // namespace fp8::log
