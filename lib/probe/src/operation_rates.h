/// Rates of operations, from the times of many calls.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/device/profile.h"
#include "fp8/json/value.h"

namespace fp8::probe {

/// Collects timed operations by kind and size, and gives figures of fp8-machine(5). Other programs only slow calls
/// down, so a figure is the rate of the fastest third of the calls to that of the fastest twentieth.
class OperationRates {
 public:
  /// Calls of fewer seconds are left out: the synchronization of a device takes as long.
  explicit OperationRates(double least_seconds) : least_seconds_(least_seconds) {}
  /// Adds the operations of timed steps; exchanges, input and output are left out.
  void add(const std::vector<device::Span>& spans);
  /// `gemm`: the kinds of operands; kinds that were not measured have the figures of bf16.
  json::Value gemms() const;
  /// `attention`.
  json::Value attention() const;
  /// `bytes`, over all operations.
  json::Value bytes() const;
  /// `operations`.
  json::Value operations() const;

 private:
  // Calls of about one size: the size of the first, and the rates of all.
  struct Calls {
    std::vector<double> sizes, rates;
  };
  // By the logarithms of the sizes, in quarters of a factor of two.
  using BySize = std::map<std::vector<long>, Calls>;
  using ByName = std::map<std::string, BySize, std::less<>>;
  static void add(BySize& calls, std::vector<double> sizes, double rate);
  static json::Value rows_of(const BySize& calls);
  json::Value gemm(const std::string& kind) const;

  double least_seconds_;
  ByName gemms_;                                      // FLOP/s by kind of operands, then m, n, k
  ByName attention_;                                  // FLOP/s by direction, then positions
  ByName operations_;                                 // bytes/s by name, then bytes
  std::map<std::string, std::vector<double>> bytes_;  // bytes/s by key of `bytes`, of calls that move much
};

/// A figure {"value": [slow, fast], "source": source}.
json::Value figure(double slow, double fast, const std::string& source);

}  // namespace fp8::probe
