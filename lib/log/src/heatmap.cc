// Layers x steps: which cell has which value.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "casts.h"
#include "fp8/base/error.h"
#include "fp8/base/expert_name.h"
#include "fp8/base/text.h"
#include "fp8/log/tensors.h"

namespace fp8::log {
namespace {

// dB below the ideal SQNR at the ends of the colours: casts that are better than ideal differ by less than one.
constexpr double kBest = -1, kLeastRange = 1, kMostRange = 12;

bool of_products(std::string_view metric) { return metric == "relative_error"; }

// The place of a linear in the model: what comes before the layers, the layers in order, what comes behind them.
struct Place {
  int part = 0;  // 0: before the layers, 1: a layer, 2: behind them
  std::int64_t layer = 0;
  std::size_t module = 0;    // among kModules
  std::int64_t expert = -1;  // -1: none
  std::string name{};

  auto operator<=>(const Place&) const = default;
};

Place place_of(const std::string& linear) {
  constexpr std::string_view kLayers = "model.layers.";
  constexpr std::array<std::string_view, 14> kModules = {"q_proj",  "k_proj", "v_proj",    "qkv_proj", "o_proj",
                                                         "gate",    "router", "gate_proj", "w1",       "gate_up_proj",
                                                         "up_proj", "w3",     "down_proj", "w2"};
  Place place{.name = linear};
  if (!linear.starts_with(kLayers)) {
    place.part = linear.find("embed") != std::string::npos ? 0 : 2;
    return place;
  }
  const std::string name = short_name(linear);
  place.part = 1;
  place.layer =
      parse_int64(std::string_view(linear).substr(kLayers.size(), linear.find('.', kLayers.size()) - kLayers.size()))
          .value_or(-1);
  place.module = static_cast<std::size_t>(
      std::ranges::find(kModules, std::string_view(name).substr(name.find(' ') + 1)) - kModules.begin());
  if (const std::optional<ExpertName> expert = expert_name(linear)) place.expert = expert->number;
  return place;
}

// The linears of a run in the order of the model, with the number of their row.
std::map<std::string, std::size_t> rows_of(const TensorRun& run, std::vector<std::string>& names) {
  std::set<Place> places;
  for (const TensorSeries& series : run.series) places.insert(place_of(series.linear));
  std::map<std::string, std::size_t> rows;
  for (const Place& place : places) {
    rows.emplace(place.name, names.size());
    names.push_back(short_name(place.name));
  }
  return rows;
}

// How a metric is shown.
struct Scale {
  std::string_view metric;
  std::string_view label;
  double factor = 1;         // factor of the values
  bool logarithmic = false;  // log10 of the values
  bool distance = false;     // distance from the ideal SQNR
};

constexpr std::array<Scale, kTensorMetrics.size()> kScales = {
    {{"amax", "log10 of the amax", 1, true},
     {"scale", "log10 of the scale", 1, true},
     {"scale_max", "log10 of the largest scale", 1, true},
     {"underflow_share", "nonzero elements that underflow (%)", 100},
     {"subnormal_share", "nonzero elements with subnormal codes (%)", 100},
     {"saturated_share", "nonzero elements that saturate (%)", 100},
     {"sqnr_db", "SQNR of the cast, dB below the ideal of its format", 1, false, true},
     {"dynamic_range", "dynamic range (log2)"},
     {"relative_error", "relative error of the product (%)", 100}}};

const Scale& scale_of(std::string_view metric) { return *std::ranges::find(kScales, metric, &Scale::metric); }

// A value as it is shown; `ideal`: the SQNR of an ideal cast to its format. The distance from it is infinite for a cast
// of elements that are not finite, and -infinite for an exact cast.
double shown_value(const Scale& scale, double v, double ideal) {
  if (std::isnan(v)) return v;
  if (scale.logarithmic) return v > 0 ? std::log10(v) : NAN;
  if (scale.distance) return ideal - v;
  return scale.factor * v;
}

// The range of the colours: all finite values. Shares begin at 0, and SQNRs end where every lower one is bad.
std::pair<double, double> colour_range(const plot::Heatmap& map, const Scale& scale) {
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const plot::HeatPanel& panel : map.panels) {
    for (const double s : panel.values) {
      if (!std::isfinite(s)) continue;
      low = std::min(low, s);
      high = std::max(high, s);
    }
  }
  if (low > high) return {0, 1};
  if (scale.factor == 100) low = 0;
  if (scale.distance) return {std::clamp(low, kBest, 0.0), std::clamp(high, kLeastRange, kMostRange)};
  return {low, high > low ? high : low + 1};
}

// The names of panels, in order.
std::vector<std::string> panels_of(std::string_view metric) {
  if (of_products(metric)) return {"forward", "dgrad", "wgrad"};
  return {"input", "weight", "grad_output"};
}

// The part of a short name before or after the blank; the whole name if there is none.
std::string layer_in_name(const std::string& name) { return name.substr(0, name.find(' ')); }
std::string module_in_name(const std::string& name) { return name.substr(name.find(' ') + 1); }

// The number of a name among names, to which it is added if need be.
std::size_t number_of(std::vector<std::string>& names, const std::string& name) {
  const auto at = std::ranges::find(names, name);
  const auto number = static_cast<std::size_t>(at - names.begin());
  if (at == names.end()) names.push_back(name);
  return number;
}

// Fills the cells of a map whose rows and columns are known; `cell_of` gives the cell of a value of a series, by its
// index.
template <class CellOf>
void fill(const TensorRun& run, std::size_t metric, std::size_t cells, plot::Heatmap& map, CellOf&& cell_of) {
  const Scale& scale = scale_of(kTensorMetrics.at(metric));
  for (const std::string& name : panels_of(scale.metric)) {
    plot::HeatPanel panel{name, std::vector<double>(cells, NAN)};
    bool used = false;
    for (const TensorSeries& series : run.series) {
      if ((of_products(scale.metric) ? series.gemm : series.operand) != name) continue;
      for (std::size_t i = 0; i < series.at.size(); ++i) {
        const double v = shown_value(scale, series.values[i].at(metric), series.ideal[i]);
        if (std::isnan(v)) continue;
        used = true;
        double& cell = panel.values[cell_of(series, i)];
        if (std::isnan(cell) || v > cell) cell = v;
      }
    }
    if (used) map.panels.push_back(std::move(panel));
  }
  if (map.panels.empty())
    throw Error(run.path + ": no record has a value of " + std::string(scale.metric) + reason_of(run));
  std::tie(map.low, map.high) = colour_range(map, scale);
  map.label = scale.label;
}

// Sets the steps of a map to those of a run, in `columns` columns at most. Returns the number of steps in a column.
std::size_t set_steps(const TensorRun& run, std::size_t columns, plot::Heatmap& map) {
  const std::size_t each =
      std::max<std::size_t>(1, (run.steps.size() + columns - 1) / std::max<std::size_t>(1, columns));
  for (std::size_t s = 0; s < run.steps.size(); s += each) map.steps.push_back(run.steps[s]);
  map.steps.push_back(run.steps.back());
  return each;
}

plot::Heatmap map_of_steps(const TensorRun& run, std::size_t metric, std::size_t columns) {
  plot::Heatmap map;
  const std::map<std::string, std::size_t> row_of = rows_of(run, map.rows);
  const std::size_t each = set_steps(run, columns, map), width = column_count(map);
  fill(run, metric, map.rows.size() * width, map, [&](const TensorSeries& series, std::size_t i) {
    return row_of.at(series.linear) * width + series.at[i] / each;
  });
  map.title = map.label + ", layers x steps";
  return map;
}

plot::Heatmap map_of_layers(const TensorRun& run, std::size_t metric) {
  plot::Heatmap map;
  std::vector<std::string> linears;
  (void)rows_of(run, linears);
  for (const std::string& name : linears) {
    number_of(map.rows, layer_in_name(name));
    number_of(map.columns, module_in_name(name));
  }
  const std::size_t width = map.columns.size();
  fill(run, metric, map.rows.size() * width, map, [&](const TensorSeries& series, std::size_t) {
    const std::string name = short_name(series.linear);
    return number_of(map.rows, layer_in_name(name)) * width + number_of(map.columns, module_in_name(name));
  });
  map.title = map.label + ", by layer; " + run.series.front().recipe;
  return map;
}

}  // namespace

std::string short_name(const std::string& linear) {
  std::string name = linear;
  if (name.ends_with(".weight")) name.resize(name.size() - 7);
  std::string last = name.substr(name.rfind('.') + 1);
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return last;
  const std::string rest = name.substr(kLayers.size());
  return rest.substr(0, rest.find('.')) + " " + last;
}

std::string reason_of(const TensorRun& run) {
  const std::string unknown = unknown_formats(run);
  return unknown.empty() ? "" : "; " + unknown;
}

void check_one_recipe(const TensorRun& run) {
  const std::vector<std::string> names = recipes_of(run);
  if (names.size() < 2) return;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + excerpt(name);
  throw Error(run.path + ": a plot needs one recipe, found " + list + "; inspect one, or select its records with grep");
}

plot::Heatmap heatmap(const TensorRun& run, std::size_t metric, std::size_t columns) {
  check_one_recipe(run);
  if (run.series.empty())
    throw Error(run.path + ": no record has a value of " + std::string(kTensorMetrics.at(metric)));
  plot::Heatmap map = run.inspection ? map_of_layers(run, metric) : map_of_steps(run, metric, columns);
  if (!of_products(kTensorMetrics.at(metric))) map.title += "; the worst GEMM of each linear";
  return map;
}

plot::Heatmap route_heatmap(const TensorRun& run) {
  if (run.routes.empty()) throw Error(run.path + ": no record of routes; fp8-inspect --routes --json writes them");
  plot::Heatmap map;
  std::vector<std::int64_t> layers;
  for (const RouteShares& r : run.routes) layers.push_back(r.layer);
  std::ranges::sort(layers);
  const auto repeated = std::ranges::unique(layers);
  layers.erase(repeated.begin(), repeated.end());
  for (const std::int64_t layer : layers) map.rows.push_back(std::to_string(layer));
  for (const RouteShares& r : run.routes) (void)number_of(map.columns, r.recipe);
  plot::HeatPanel panel{"against " + run.routes.front().reference,
                        std::vector<double>(map.rows.size() * map.columns.size(), NAN)};
  double most = 0;
  for (const RouteShares& r : run.routes) {
    const std::size_t row = number_of(map.rows, std::to_string(r.layer)), column = number_of(map.columns, r.recipe);
    panel.values[row * map.columns.size() + column] = 100 * r.differ;
    most = std::fmax(most, 100 * r.differ);
  }
  map.panels.push_back(std::move(panel));
  map.high = most > 0 ? most : 1;
  map.label = "tokens with other experts (%)";
  map.title = map.label + ", by layer";
  return map;
}

plot::Heatmap expert_heatmap(const TensorRun& run, std::size_t columns) {
  constexpr std::size_t kMostCells = 120000, kLeastColumns = 10;  // a file of SVG has 100 bytes a cell
  plot::Heatmap map;
  std::vector<const LayerLoads*> layers;
  for (const LayerLoads& l : run.experts)
    if (!l.at.empty()) layers.push_back(&l);
  if (layers.empty()) throw Error(run.path + ": no record of experts, which models without them have not");
  std::ranges::sort(layers, {}, &LayerLoads::layer);
  for (const LayerLoads* l : layers)
    for (std::size_t e = 0; e < l->loads.front().size(); ++e)
      map.rows.push_back(std::to_string(l->layer) + " expert " + std::to_string(e));
  const std::size_t each =
      set_steps(run, std::min(columns, std::max(kLeastColumns, kMostCells / map.rows.size())), map);
  const std::size_t width = column_count(map);
  std::vector<double> sums(map.rows.size() * width, 0), counts(sums);
  map.high = 2;
  std::size_t row = 0;
  for (const LayerLoads* l : layers) {
    for (std::size_t i = 0; i < l->at.size(); ++i) {
      for (std::size_t e = 0; e < l->loads[i].size(); ++e) {
        const std::size_t cell = (row + e) * width + l->at[i] / each;
        sums[cell] += l->loads[i][e];
        ++counts[cell];
      }
    }
    row += l->loads.front().size();
  }
  plot::HeatPanel panel{"rows over the mean of the layer", std::vector<double>(sums.size(), NAN)};
  for (std::size_t cell = 0; cell < sums.size(); ++cell) {
    if (counts[cell] == 0) continue;
    panel.values[cell] = sums[cell] / counts[cell];
    map.high = std::max(map.high, panel.values[cell]);
  }
  map.panels.push_back(std::move(panel));
  map.label = "load of the expert";
  map.title = "load of each expert of a layer, by step" +
              std::string(each > 1 ? "; mean of " + std::to_string(each) + " steps" : "");
  return map;
}

}  // namespace fp8::log
