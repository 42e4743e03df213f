// Samples of operations, and their quantiles.
#include "operation_rates.h"

#include <algorithm>
#include <cmath>

namespace fp8::probe {
namespace {

using device::OperandKind;
using device::Span;
using device::Work;

constexpr double kSlow = 1.0 / 3, kFast = 1.0 / 20;  // shares of the calls
constexpr double kMuch = 1e6;                        // bytes of an operation that counts for bytes()
const char* const kSource =
    "steps of small models on this machine, timed by operation: the fastest third and the fastest twentieth of calls";

// A rate with 4 digits, since more would not repeat.
double rounded(double x) {
  const double unit = std::pow(10, std::floor(std::log10(x)) - 3);
  return std::round(x / unit) * unit;
}

// The rate that so large a share of the calls reaches.
double reached_by(std::vector<double> rates, double share) {
  std::ranges::sort(rates, std::greater());
  return rounded(rates[static_cast<std::size_t>(share * static_cast<double>(rates.size() - 1))]);
}

std::string kind_of(const Span& s) {
  if (s.operands == OperandKind::f32) return "f32";
  if (s.operands == OperandKind::bf16) return "bf16";
  const bool blocks = s.scaling == device::Scaling::block1x128 || s.scaling == device::Scaling::block128x128;
  return blocks ? "fp8_blocks" : s.work == Work::matmul_forward ? "fp8" : "fp8_accurate";
}

json::Value measured(json::Value value) { return json::object({{"value", std::move(value)}, {"source", kSource}}); }

json::Value pair_of(const std::vector<double>& rates) {
  return measured(json::Array{reached_by(rates, kSlow), reached_by(rates, kFast)});
}

const char* key_of(Work work) { return work == Work::cast ? "cast" : work == Work::optimizer ? "optimizer" : "kernel"; }

}  // namespace

json::Value figure(double slow, double fast, const std::string& source) {
  return json::object({{"value", json::Array{slow, fast}}, {"source", source}});
}

void OperationRates::add(BySize& calls, std::vector<double> sizes, double rate) {
  std::vector<long> key;
  for (const double size : sizes) key.push_back(std::lround(4 * std::log2(std::max(1.0, size))));
  Calls& of_size = calls[key];
  if (of_size.rates.empty()) of_size.sizes = std::move(sizes);
  of_size.rates.push_back(rate);
}

void OperationRates::add(const std::vector<Span>& spans) {
  for (const Span& s : spans) {
    const double seconds = 1e-9 * static_cast<double>(s.end - s.begin);
    if (s.kind != device::SpanKind::operation || s.work == Work::communication || s.work == Work::input_output ||
        seconds <= least_seconds_)
      continue;
    const auto size = [&](std::size_t i) { return static_cast<double>(s.mnk[i]); };
    if (s.gemms > 0) {
      if (s.flops > 0) add(gemms_[kind_of(s)], {size(0) / s.gemms, size(1), size(2)}, s.flops / seconds);
    } else if (s.work == Work::attention) {
      const bool backward = s.name.find("backward") != std::string_view::npos;
      add(attention_[backward ? "backward" : "forward"], {size(1)}, s.flops / seconds);
    } else if (s.bytes > 0) {
      add(operations_[std::string(s.name)], {s.bytes}, s.bytes / seconds);
      if (s.bytes >= kMuch) bytes_[key_of(s.work)].push_back(s.bytes / seconds);
    }
  }
}

json::Value OperationRates::rows_of(const BySize& calls) {
  json::Array rows;
  for (const auto& [key, of_size] : calls) {
    json::Array row;
    for (const double size : of_size.sizes) row.emplace_back(std::round(size));
    row.emplace_back(reached_by(of_size.rates, kSlow));
    row.emplace_back(reached_by(of_size.rates, kFast));
    rows.emplace_back(std::move(row));
  }
  return measured(std::move(rows));
}

// The rate of large GEMMs is that of the shape with the most multiplications.
json::Value OperationRates::gemm(const std::string& kind) const {
  const auto found = gemms_.find(kind);
  const BySize& shapes = found == gemms_.end() ? gemms_.at("bf16") : found->second;
  const auto flops = [](const auto& shape) {
    const std::vector<double>& s = shape.second.sizes;
    return s[0] * s[1] * s[2];
  };
  const auto largest = std::ranges::max_element(shapes, {}, flops);
  return json::object({{"rate", pair_of(largest->second.rates)},
                       {"depth", json::object({{"value", 0}, {"source", "the shapes have it"}})},
                       {"shapes", rows_of(shapes)}});
}

json::Value OperationRates::gemms() const {
  json::Value all = json::object({});
  for (const char* const kind : {"f32", "bf16", "fp8", "fp8_accurate", "fp8_blocks"})
    all.as_object().set(kind, gemm(kind));
  return all;
}

json::Value OperationRates::attention() const {
  return json::object({{"forward", rows_of(attention_.at("forward"))},
                       {"backward", rows_of(attention_.at("backward"))},
                       {"heads", json::object({{"value", json::Array{json::Array{1, 1, 1}}},
                                               {"source", "heads do not count: one size was measured"}})}});
}

json::Value OperationRates::bytes() const {
  json::Value all = json::object({});
  for (const char* const key : {"cast", "kernel", "optimizer"}) all.as_object().set(key, pair_of(bytes_.at(key)));
  return all;
}

json::Value OperationRates::operations() const {
  json::Value all = json::object({});
  for (const auto& [name, calls] : operations_) all.as_object().set(name, rows_of(calls));
  return all;
}

}  // namespace fp8::probe
