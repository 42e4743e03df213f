// Runs the measurements and writes their JSON record.
#include "fp8/probe/bench.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/error.h"
#include "fp8/gemm/gemm.h"
#include "linear_gemms.h"
#include "steps.h"

namespace fp8::probe {
namespace {

json::Value share(double flop_per_s, double peak) { return peak > 0 ? json::Value(flop_per_s / peak) : json::Value(); }

json::Value interval(const Ratio& r) {
  return std::isfinite(r.high) ? json::Value(json::Array{r.low, r.high}) : json::Value();
}

// Null where the interval contains 1.
json::Value faster(const Ratio& r, bool emulated) {
  const Speed speed = speed_of(r, emulated);
  return speed == Speed::cannot_tell ? json::Value() : json::Value(speed == Speed::faster);
}

// One precision of a linear's pass: seconds, FLOP/s and share of the peak.
json::Value side(const Timing& t, double flops, double peak) {
  return json::object({{"seconds", t.median},
                       {"low", t.low},
                       {"high", t.high},
                       {"samples", t.samples},
                       {"tflops", 1e-12 * flops / t.median},
                       {"of_peak", share(flops / t.median, peak)}});
}

json::Value side(const StepsResult& s) {
  return json::object({{"seconds", s.seconds.median},
                       {"low", s.seconds.low},
                       {"high", s.seconds.high},
                       {"steps", s.seconds.samples},
                       {"tokens_per_s", s.tokens_per_s},
                       {"fp8_flop_share", s.fp8_flop_share},
                       {"memory_peak_bytes", s.memory_peak_bytes}});
}

json::Value product(const ProductResult& p, const Peak& peak, bool emulated) {
  return json::object({{"linear", p.linear},
                       {"pass", p.pass},
                       {"m", p.m},
                       {"n", p.n},
                       {"k", p.k},
                       {"layers", p.layers},
                       {"bf16", side(p.bf16_s, p.flops(), peak.bf16)},
                       {"fp8", side(p.fp8_s, p.flops(), p.fp8 ? peak.fp8 : peak.bf16)},
                       {"in_fp8", p.fp8},
                       {"cast_share", p.cast_share},
                       {"ratio", p.ratio.median},
                       {"ratio_interval", interval(p.ratio)},
                       {"fp8_faster", faster(p.ratio, emulated)}});
}

Peak peak_of(const device::Device& device, double seconds) {
  if (const auto known = known_peak(device.name())) return *known;
  return {measured_peak(device, seconds), 0, "measured: the fastest bf16 GEMM"};
}

// Raises a measured peak to the fastest bf16 GEMM, so that no share of the peak exceeds 1.
void raise_measured(Peak& peak, const std::vector<ProductResult>& products) {
  for (const ProductResult& p : products) peak.bf16 = std::max(peak.bf16, p.flops() / p.bf16_s.low);
}

// Sets the times and the ratio of all linears. The ends of the intervals are averaged with the FP8 times as weights.
void add_up(BenchResult& r) {
  double low = 0, high = 0;
  for (const ProductResult& p : r.products) {
    if (p.pass != "forward" && p.pass != "backward") continue;
    const double bf16 = p.bf16_s.median * static_cast<double>(p.layers);
    const double fp8 = p.fp8_s.median * static_cast<double>(p.layers);
    r.bf16_s += bf16;
    r.fp8_s += fp8;
    low += fp8 * p.ratio.low;
    high += fp8 * p.ratio.high;
  }
  r.linears = {r.bf16_s / r.fp8_s, low / r.fp8_s, high / r.fp8_s};
}

}  // namespace

Speed speed_of(const Ratio& r, bool emulated) {
  if (r.high < 1) return Speed::not_faster;
  return r.low > 1 && !emulated ? Speed::faster : Speed::cannot_tell;
}

BenchResult bench(const BenchOptions& options) {
  const auto say = [&](const char* what) {
    if (options.progress) options.progress(what);
  };
  BenchResult result;
  {
    const device::Device device(options.device);
    result.device = device.name();
    result.emulated = options.device == device::DeviceType::host;
    if (!result.emulated && device.compute_capability() < kFirstFp8)
      throw Error(result.device + " has no FP8 tensor cores", Exit::no, {{"device", "cpu to measure the emulation"}});
    say("the peak FLOP/s");
    result.peak = peak_of(device, options.seconds);
    result.products = time_products(device, options);
    if (!known_peak(result.device)) raise_measured(result.peak, result.products);
  }
  add_up(result);
  if (options.steps > 0) time_steps(options, result);
  return result;
}

json::Value to_json(const BenchOptions& options, const BenchResult& r) {
  json::Array products;
  for (const ProductResult& p : r.products) products.push_back(product(p, r.peak, r.emulated));
  json::Value v = json::object(
      {{"type", "bench"},
       {"device", r.device},
       {"emulated", r.emulated},
       {"library", r.emulated ? gemm::library_version() : gemm::device_library_version()},
       {"model", options.model_name},
       {"recipe", options.recipe->name},
       {"tokens", options.tokens},
       {"peak_tflops", json::object({{"bf16", 1e-12 * r.peak.bf16},
                                     {"fp8", r.peak.fp8 > 0 ? json::Value(1e-12 * r.peak.fp8) : json::Value()},
                                     {"source", r.peak.source}})},
       {"gemms", std::move(products)},
       {"linears", json::object({{"bf16_s", r.bf16_s},
                                 {"fp8_s", r.fp8_s},
                                 {"ratio", r.linears.median},
                                 {"ratio_interval", interval(r.linears)},
                                 {"fp8_faster", faster(r.linears, r.emulated)}})}});
  if (!r.bf16_steps || !r.fp8_steps) return v;
  v.as_object().set("steps", json::object({{"sequences", r.sequences},
                                           {"length", r.length},
                                           {"bf16", side(*r.bf16_steps)},
                                           {"fp8", side(*r.fp8_steps)},
                                           {"ratio", r.steps.median},
                                           {"ratio_interval", interval(r.steps)},
                                           {"fp8_faster", faster(r.steps, r.emulated)}}));
  return v;
}

}  // namespace fp8::probe
