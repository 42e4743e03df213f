/// Statistics of FP8 operands and products, and loads of experts, over the steps of a run, from the tensors.jsonl that
/// fp8-step writes, or of an inspection, from the records of fp8-inspect: the worst, CSV, heatmaps, and histograms of
/// exponents.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/log/export.h"
#include "fp8/plot/exponents.h"
#include "fp8/plot/heatmap.h"

namespace fp8::log {

/// The figures that are kept of each record, as fp8-inspect(1) describes them. An operand has all but the last, a
/// product only the last.
inline constexpr std::array<std::string_view, 9> kTensorMetrics = {
    "amax",    "scale",         "scale_max",     "underflow_share", "subnormal_share", "saturated_share",
    "sqnr_db", "dynamic_range", "relative_error"};

/// The SQNR in decibels of casts to "e4m3" or "e5m2" of values that neither underflow, saturate nor become subnormal;
/// NaN for another format. With p bits of mantissa, x = u 2^e, 1 <= u < 2, is rounded by an error uniform in
/// +-2^(e-p-1), whose mean square is 4^(e-p) / 12, the share 1 / (12 4^p u^2) of x^2. For values spread over a binade,
/// uniformly in log u, the mean of 1 / u^2 is 3 / (8 ln 2), so that signal / noise is 32 ln(2) 4^p: 31.52 dB in E4M3
/// and 25.50 dB in E5M2. Values near a power of two lose up to 2.7 dB of it, those just below one gain 3.4 dB.
double ideal_sqnr_db(std::string_view format);

/// Counts of the nonzero elements of an operand by floor(log2|x * scale|).
struct ExponentCounts {
  std::int64_t lowest = 0;       ///< exponent of the first count
  std::vector<double> counts{};  ///< empty if a record has none
};

/// The figures of an operand, or a product, at some steps.
struct TensorSeries {
  std::string linear{};           ///< name of the weight
  std::string gemm{};             ///< forward, dgrad, wgrad
  std::string operand{};          ///< input, weight, grad_output; empty for a product
  std::string recipe{};           ///< recipe of the last record
  std::string format{};           ///< format of the last record; empty for a product
  std::vector<std::size_t> at{};  ///< indices of steps, increasing
  std::vector<std::array<double, kTensorMetrics.size()>>
      values{};                 ///< values of each step; NaN where a record lacks one
  std::vector<double> ideal{};  ///< ideal SQNR of the format at each step; NaN for a product
  ExponentCounts exponents{};   ///< exponents of the last record
};

/// The loads of the experts of a layer at some steps. The load of an expert is its number of rows over the mean of its
/// layer: 1 if all experts have as many, 0 without rows, at most E / k.
struct LayerLoads {
  std::int64_t layer = 0;                    ///< from 0
  std::string module{};                      ///< "model.layers.3.mlp.experts", before the numbers of its experts
  std::vector<std::size_t> at{};             ///< indices of steps, increasing
  std::vector<std::vector<double>> loads{};  ///< [steps, E]
};

/// The tokens of a layer that get other experts in an inspection.
struct RouteShares {
  std::int64_t layer = 0;     ///< from 0
  std::string recipe{};       ///< recipe or precision of these routes
  std::string reference{};    ///< recipe or precision of those that they are compared with
  std::int64_t tokens = 0;    ///< tokens that are routed
  double differ = 0;          ///< share of the tokens with other experts, 0 to 1; NaN without tokens
  double experts_differ = 0;  ///< share of their experts that are others
};

/// The statistics of a run.
struct TensorRun {
  std::string path{};                  ///< as given
  std::vector<std::int64_t> steps{};   ///< numbers of the steps with records, increasing
  std::vector<TensorSeries> series{};  ///< in order of appearance
  std::vector<LayerLoads> experts{};   ///< layers with experts, in order of appearance
  std::vector<RouteShares> routes{};   ///< in order of appearance
  /// Formats without a known range, whose casts have no ideal SQNR and no histogram: the first of them, in order of
  /// appearance.
  std::vector<std::string> unknown_formats{};
  bool inspection = false;  ///< whether fp8-inspect made the records; then each recipe has series of its own
};

/// Reads the statistics of a run: a folder that contains tensors.jsonl, a file, or "-" for standard input; or the
/// records of fp8-inspect, whose step is in their {"type":"inspect"} record. A record of
/// a step that is not above the last replaces all records from that step on (the run was resumed). A line that was cut
/// off is ignored at the end, or before the records of another step, or of the same step again. An SQNR that is null is
/// -infinite if the operand has elements that are not finite, else infinite (the cast is exact). Throws Error `path:
/// reason` when there are no statistics, and `path: line L ...: reason` for a line that is no record of them.
/// Memory: 88 bytes a record, 8 bytes an expert for a record of experts, and twice that while it grows.
TensorRun read_tensors(const std::string& path, const std::function<void(const std::string& path)>& waiting = {});

/// The index of a metric among kTensorMetrics. Throws Error listing them if it is unknown.
std::size_t tensor_metric(std::string_view metric);

/// The step at which a series was worst.
struct WorstTensor {
  const TensorSeries* series = nullptr;  ///< series of an operand or product
  std::string gemms{};                   ///< GEMMs that read the cast, separated by commas
  double value = 0;                      ///< its lowest SQNR, or largest value of another metric
  std::int64_t step = 0;                 ///< the first step that has it
  double last = 0;                       ///< the value of its last step
};

/// "unknown formats: e9m9, e5m3": why casts are missing in plots of SQNRs and of exponents; empty if none is.
std::string unknown_formats(const TensorRun& run);

/// The names of the recipes of an inspection, in order; empty for a run.
std::vector<std::string> recipes_of(const TensorRun& run);

/// The series by their worst values, worst first. A cast that several GEMMs read, whose series have the same figures,
/// is there once. Series without a value are left out, and so are series whose worst value is harmless: 0, or an
/// infinite SQNR.
std::vector<WorstTensor> worst_tensors(const TensorRun& run, std::size_t metric);

/// The step at which an expert of a layer had its largest load.
struct WorstLoad {
  std::int64_t layer = 0;    ///< from 0
  std::size_t expert = 0;    ///< the first expert that has it
  double load = 0;           ///< the largest load of an expert of the layer
  std::int64_t step = 0;     ///< the first step that has it
  double last = 0;           ///< the largest load of an expert of the layer at its last step
  std::int64_t idle = 0;     ///< experts without rows at its last step
  std::int64_t experts = 0;  ///< E
};

/// The layers with experts by their largest loads, largest first.
std::vector<WorstLoad> worst_loads(const TensorRun& run);

/// Writes a heading, then a line for each record: step, linear, gemm, operand, recipe and kTensorMetrics. If a run has
/// experts, there is one more column, kExpertLoad, and a line for each expert after the others of a step. If it has
/// routes, there are two more, kDiffer and experts_differ, and a line for each at the end. Fields as write_csv() has
/// them.
void write_tensor_csv(const TensorRun& run, const Sink& sink);

/// One {"type":"tensor"} record for each series with the worst value of each metric, and its step, then one
/// {"type":"experts"} for each layer with experts, and one {"type":"routes"} for each layer and recipe; see fp8-log(5).
std::vector<json::Value> tensor_records(const TensorRun& run);

/// Name of the plot of the loads of experts.
inline constexpr std::string_view kExpertLoad = "expert_load";

/// Name of the plot of routes.
inline constexpr std::string_view kDiffer = "differ";

/// Name of the plot of the histograms of exponents.
inline constexpr std::string_view kExponents = "exponents";

/// The heatmap of a metric: linears x steps of a run, layers x linears of an inspection. A cell has the worst value of
/// the GEMMs of its linear, and, beyond `columns` steps, of several steps. An SQNR is shown as its distance from the
/// ideal of its format, see ideal_sqnr_db(). Throws Error if no record has the metric, or an inspection has several
/// recipes.
plot::Heatmap heatmap(const TensorRun& run, std::size_t metric, std::size_t columns);

/// The heatmap of the loads of experts: layers and their experts x steps. Beyond `columns` steps, and fewer if there
/// are many experts, a cell has the mean of several steps. Throws Error if there are no loads.
plot::Heatmap expert_heatmap(const TensorRun& run, std::size_t columns);

/// The routes by their recipes, most tokens with other experts first.
std::vector<RouteShares> worst_routes(const TensorRun& run);

/// The heatmap of RouteShares::differ: layers x recipes. Throws Error if there are no routes.
plot::Heatmap route_heatmap(const TensorRun& run);

/// Histograms of the exponents of scaled elements of inputs, weights and gradients, each cast counted once, at the last
/// step of each, against the range of the format. Throws Error if no record has one, or an inspection has several
/// recipes.
plot::ExponentChart exponent_chart(const TensorRun& run);

/// "3 q_proj" for model.layers.3.self_attn.q_proj.weight; the name of the module for a linear outside of the layers.
std::string short_name(const std::string& linear);

}  // namespace fp8::log
