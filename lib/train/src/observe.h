// The linears that a Collector observes, and the file to which a run writes what it found. Private to the crate.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp8/inspect/collector.h"
#include "fp8/json/value.h"
#include "fp8/model/parameters.h"

namespace fp8::train {

// By number: whether a parameter is a linear in FP8 whose name matches one of `globs`, or any if there are none. Throws
// Error naming a glob that matches none.
std::vector<char> observed_linears(const std::vector<model::Parameter>& table, const std::vector<std::string>& globs);

// Names by number. The table outlives it.
std::function<std::string(int)> linear_names(const std::vector<model::Parameter>& table);

// Writes the figures of a run's steps to tensors.jsonl in its folder; on rank 0.
class TensorLog {
 public:
  explicit TensorLog(const std::string& run_folder) : path_(run_folder + "/tensors.jsonl") {}
  // Appends the records of a step, each with its number. Returns the reason of a failure.
  std::optional<std::string> write(std::int64_t step, std::vector<json::Value> records) const;

 private:
  std::string path_;
};

}  // namespace fp8::train
