/// Statistics of FP8 operands and products over the steps of a run, from the tensors.jsonl that fp8-step writes: the
/// worst of a run, CSV, and layers x steps as a heatmap.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/log/export.h"
#include "fp8/plot/heatmap.h"

namespace fp8::log {

/// The figures that are kept of each record, as fp8-inspect(1) describes them. An operand has all but the last, a
/// product only the last.
inline constexpr std::array<std::string_view, 9> kTensorMetrics = {
    "amax",    "scale",         "scale_max",     "underflow_share", "subnormal_share", "saturated_share",
    "sqnr_db", "dynamic_range", "relative_error"};

/// The figures of an operand, or a product, at some steps.
struct TensorSeries {
  std::string linear{};           ///< name of the weight
  std::string gemm{};             ///< forward, dgrad, wgrad
  std::string operand{};          ///< input, weight, grad_output; empty for a product
  std::string recipe{};           ///< recipe of the last record
  std::vector<std::size_t> at{};  ///< indices of steps, increasing
  std::vector<std::array<double, kTensorMetrics.size()>>
      values{};  ///< values of each step; NaN where a record lacks one
};

/// The statistics of a run.
struct TensorRun {
  std::string path{};                  ///< as given
  std::vector<std::int64_t> steps{};   ///< numbers of the steps with records, increasing
  std::vector<TensorSeries> series{};  ///< in order of appearance
};

/// Reads the statistics of a run: a folder that contains tensors.jsonl, a file, or "-" for standard input. A record of
/// a step that is not above the last replaces all records from that step on (the run was resumed). A line that was cut
/// off is ignored at the end, or before the records of another step, or of the same step again. An SQNR that is null is
/// -infinite if the operand has elements that are not finite, else infinite (the cast is exact). Throws Error `path:
/// reason` when there are no statistics, and `path: line L ...: reason` for a line that is no record of them.
/// Memory: 80 bytes a record, and twice that while it grows.
TensorRun read_tensors(const std::string& path, const std::function<void(const std::string& path)>& waiting = {});

/// The index of a metric among kTensorMetrics. Throws Error listing them if it is unknown.
std::size_t tensor_metric(std::string_view metric);

/// The step at which a series was worst.
struct WorstTensor {
  const TensorSeries* series = nullptr;  ///< series of an operand or product
  double value = 0;                      ///< its lowest SQNR, or largest value of another metric
  std::int64_t step = 0;                 ///< the first step that has it
  double last = 0;                       ///< the value of its last step
};

/// The series by their worst values, worst first. Series without a value are left out, and so are series whose
/// worst value is harmless: 0, or an infinite SQNR.
std::vector<WorstTensor> worst_tensors(const TensorRun& run, std::size_t metric);

/// Writes a heading, then a line for each record: step, linear, gemm, operand, recipe and kTensorMetrics. Fields as
/// write_csv() has them.
void write_tensor_csv(const TensorRun& run, const Sink& sink);

/// One {"type":"tensor"} record for each series with the worst value of each metric, and its step; see fp8-log(5).
std::vector<json::Value> tensor_records(const TensorRun& run);

/// The heatmap of a metric. A cell has the worst value of the GEMMs of its linear, and, beyond `columns` steps, of
/// several steps. Throws Error if no record has the metric.
plot::Heatmap heatmap(const TensorRun& run, std::size_t metric, std::size_t columns);

}  // namespace fp8::log
