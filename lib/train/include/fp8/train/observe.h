/// The linears that a Collector observes, and the file to which a run writes what it found.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp8/base/lock.h"
#include "fp8/json/value.h"
#include "fp8/model/parameters.h"
#include "fp8/statistics/collector.h"

namespace fp8::train {

/// By number: whether a parameter is a linear in FP8 whose name matches one of `globs`, or any if there are none.
/// Throws Error naming a glob that matches none.
std::vector<char> observed_linears(const std::vector<model::Parameter>& table, const std::vector<std::string>& globs);

/// A collector of these linears, with figures of groups of elements if `groups`.
statistics::CollectorOptions collector_options(const std::vector<model::Parameter>& table,
                                               const std::vector<std::string>& globs, bool groups);

/// Names by number. The table outlives it.
std::function<std::string(int)> linear_names(const std::vector<model::Parameter>& table);

/// Writes the figures of a run's steps to tensors.jsonl in its folder; on rank 0.
class TensorLog {
 public:
  /// `held`, the lock of the folder, outlives this object.
  TensorLog(const std::string& run_folder, const LockedFolder& held)
      : path_(run_folder + "/tensors.jsonl"), held_(held) {}
  /// Appends the records of a step, each with its number. Returns the reason of a failure. Writes nothing, and returns
  /// no reason, if the folder is not in place, for which the run ends.
  std::optional<std::string> write(std::int64_t step, std::vector<json::Value> records) const;

 private:
  std::string path_;
  const LockedFolder& held_;
};

}  // namespace fp8::train
