// Statistics of tensors: what is accepted has increasing steps, values for its steps only, and can be exported and
// drawn.
#include "fp8/log/tensors.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "fp8/json/json.h"
#include "fuzz.h"

FP8_FUZZ(tensors) {
  using namespace fp8;
  const std::string path = fuzz::folder().write("tensors.jsonl", fuzz::text_of(data, size));
  return fuzz::judge([&] {
    const log::TensorRun run = log::read_tensors(path);
    fuzz::require(!run.steps.empty(), "there is a step");
    fuzz::require(std::adjacent_find(run.steps.begin(), run.steps.end(), std::greater_equal()) == run.steps.end(),
                  "steps increase");
    std::size_t records = 0, lines = 0;
    for (const log::TensorSeries& s : run.series) {
      records += s.at.size();
      fuzz::require(s.values.size() == s.at.size(), "a series has values for its steps");
      fuzz::require(std::adjacent_find(s.at.begin(), s.at.end(), std::greater_equal()) == s.at.end() &&
                        (s.at.empty() || s.at.back() < run.steps.size()),
                    "steps of a series increase");
    }
    for (const log::LayerLoads& layer : run.experts)
      for (const std::vector<double>& loads : layer.loads) records += loads.size();
    log::write_tensor_csv(run, [&](std::string_view piece) {
      lines += static_cast<std::size_t>(std::count(piece.begin(), piece.end(), '\n'));
    });
    fuzz::require(lines == records + 1, "CSV has a line for each record and each expert");
    for (const json::Value& record : log::tensor_records(run)) json::dump(record);
    for (std::size_t metric = 0; metric < log::kTensorMetrics.size(); ++metric) {
      const bool any = std::ranges::any_of(run.series, [&](const log::TensorSeries& s) {
        return std::ranges::any_of(s.values, [&](const auto& v) { return !std::isnan(v.at(metric)); });
      });
      fuzz::require(any || log::worst_tensors(run, metric).empty(), "the worst have a value");
    }
  });
}
