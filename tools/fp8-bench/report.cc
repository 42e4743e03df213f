// Text report of fp8-bench.
#include "report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "fp8/base/text.h"

namespace fp8::bench {
namespace {

std::string fixed(double value, int decimals) {
  std::array<char, 64> text{};
  (void)std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

// Half the interquartile range, in percent of the median.
std::string spread_text(const probe::Timing& t) {
  return fixed(t.median > 0 ? 50 * (t.high - t.low) / t.median : 0, 0);
}

// Percent of the peak.
std::string of_peak(double flops, double seconds, double peak) {
  return peak > 0 ? fixed(100 * flops / seconds / peak, 0) : "-";
}

std::string speed_text(probe::Speed speed) {
  return speed == probe::Speed::faster ? "faster" : speed == probe::Speed::not_faster ? "not faster" : "cannot tell";
}

// "bf16/FP8 0.52 (0.50 to 0.55): FP8 is not faster".
std::string verdict_text(const probe::Ratio& r, bool emulated) {
  const probe::Speed speed = probe::speed_of(r, emulated);
  const std::string interval =
      std::isfinite(r.high) ? " (" + fixed(r.low, 2) + " to " + fixed(r.high, 2) + ")" : " (interval unknown)";
  return "bf16/FP8 " + fixed(r.median, 2) + interval + ": " +
         (speed == probe::Speed::cannot_tell ? "cannot tell whether FP8 is faster" : "FP8 is " + speed_text(speed));
}

std::string products(const probe::BenchResult& result) {
  double longest = 0;
  for (const probe::ProductResult& p : result.products) longest = std::max(longest, p.fp8_s.median);
  const bool milliseconds = longest >= 1e-3;
  const double unit = milliseconds ? 1e-3 : 1e-6;
  const std::string name = milliseconds ? "ms" : "us";
  std::vector<std::vector<std::string>> rows{{"linear", "pass", "M x N x K", "bf16 " + name, "+- %", "peak %",
                                              "FP8 " + name, "+- %", "peak %", "casts %", "bf16/FP8", "FP8"}};
  for (const probe::ProductResult& p : result.products) {
    const double peak = p.fp8 ? result.peak.fp8 : result.peak.bf16;
    rows.push_back({p.linear, p.pass, std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k),
                    format_short(p.bf16_s.median / unit, 3), spread_text(p.bf16_s),
                    of_peak(p.flops(), p.bf16_s.median, result.peak.bf16), format_short(p.fp8_s.median / unit, 3),
                    spread_text(p.fp8_s), of_peak(p.flops(), p.fp8_s.median, peak), fixed(100 * p.cast_share, 0),
                    fixed(p.ratio.median, 2), p.fp8 ? speed_text(probe::speed_of(p.ratio, result.emulated)) : "none"});
  }
  return cli::table(rows);
}

std::string peak_text(const probe::Peak& peak) {
  const auto tera = [](double flops) { return format_short(1e-12 * flops, 4); };
  std::string text = "peak: " + tera(peak.bf16) + " TFLOP/s in bf16";
  if (peak.fp8 > 0) text += ", " + tera(peak.fp8) + " in FP8";
  return text + " (" + peak.source + ")\n";
}

std::string steps_text(const probe::BenchResult& r) {
  if (!r.bf16_steps || !r.fp8_steps) return {};
  std::vector<std::vector<std::string>> rows{{"steps", "s/step", "+- %", "tokens/s", "FLOPs in FP8 %"}};
  const auto row = [&](const char* name, const probe::StepsResult& s) {
    rows.push_back({name, format_short(s.seconds.median, 3), spread_text(s.seconds), fixed(s.tokens_per_s, 0),
                    fixed(100 * s.fp8_flop_share, 1)});
  };
  row("bf16", *r.bf16_steps);
  row("FP8", *r.fp8_steps);
  return "\n" + cli::table(rows);
}

std::vector<std::string> rates_row(const std::string& name, const plan::Range& rate) {
  return {name, format_short(1e-9 * rate.slow, 3), format_short(1e-9 * rate.fast, 3)};
}

}  // namespace

std::string report(const plan::Machine& m) {
  std::vector<std::vector<std::string>> rows{{"rate", "low", "high"}};
  rows.push_back(rates_row("large GEMM in f32, GFLOP/s", m.f32.rate));
  rows.push_back(rates_row("large GEMM in bf16, GFLOP/s", m.bf16.rate));
  rows.push_back(rates_row("large GEMM in FP8, GFLOP/s", m.fp8.rate));
  rows.push_back(rates_row("attention, longest sequence, GFLOP/s", m.attention_forward.back().second));
  rows.push_back(rates_row("casts, GB/s", m.cast));
  rows.push_back(rates_row("other kernels, GB/s", m.kernel));
  rows.push_back(rates_row("update, GB/s", m.optimizer));
  rows.push_back(rates_row("messages between ranks, GB/s", m.link.rate));
  return terminal_safe(m.name) + "\n" + cli::table(rows);
}

std::string report(const probe::BenchOptions& options, const probe::BenchResult& r, const cli::Style& style) {
  std::string text = terminal_safe(options.model_name) + ", " + std::to_string(options.tokens) + " tokens, " +
                     std::string(options.recipe->name) + ", on " + terminal_safe(r.device) + "\n";
  if (r.emulated) text += "FP8 is emulated on the CPU: GEMMs run in bf16, and casts are extra work\n";
  text += peak_text(r.peak) + "\n" + products(r);
  text += "\n" +
          style.bold("linears of a step: bf16 " + format_short(r.bf16_s, 3) + " s, FP8 " + format_short(r.fp8_s, 3) +
                     " s, " + verdict_text(r.linears, r.emulated)) +
          "\n";
  text += steps_text(r);
  if (!r.bf16_steps || !r.fp8_steps) return text;
  return text + "\n" +
         style.bold("whole steps of " + std::to_string(r.sequences) + " x " + std::to_string(r.length) +
                    " tokens: " + verdict_text(r.steps, r.emulated)) +
         "\n";
}

}  // namespace fp8::bench
