/// Measures FP8 against bf16 on this machine: the GEMMs of a model's linears, casts included, and whole optimizer
/// steps. Times the code that training runs (crates linear and train). GEMMs are timed alternately in both precisions,
/// so that other load on the machine affects both.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "fp8/device/device.h"
#include "fp8/hf/config.h"
#include "fp8/json/value.h"
#include "fp8/probe/chip.h"
#include "fp8/quant/recipe.h"

namespace fp8::probe {

/// The measurements that are made.
struct BenchOptions {
  device::DeviceType device = device::DeviceType::host;  ///< device to measure
  std::string model_name{};                              ///< name in the report
  hf::ModelConfig model{};                               ///< model whose linears and steps are measured
  std::int64_t tokens = 0;                               ///< M, at least 1: rows of activations
  const quant::Recipe* recipe = nullptr;                 ///< recipe of the FP8 side; not null
  double seconds = 0.5;                                  ///< approximate seconds per linear and pass, and peak
  std::int64_t steps = 0;                                ///< optimizer steps to time in each precision; 0: none
  std::function<void(const std::string&)> progress{};    ///< called with the current measurement; may be empty
};

/// Distribution of the seconds of one call.
struct Timing {
  double median = 0;         ///< median of all samples
  double low = 0;            ///< lower quartile
  double high = 0;           ///< upper quartile
  std::int64_t samples = 0;  ///< number of samples; a sample is the mean of several calls if a call is short
};

/// A ratio bf16 time / FP8 time; above 1, FP8 is faster.
struct Ratio {
  double median = 0;                                      ///< median of the samples
  double low = 0;                                         ///< lower end of the 95 % interval; 0 if unknown
  double high = std::numeric_limits<double>::infinity();  ///< upper end; infinity if unknown
};

/// The verdict about a ratio.
enum class Speed : std::uint8_t { faster, not_faster, cannot_tell };

/// Whether FP8 is faster: only if the whole interval is on one side of 1. Emulated FP8 is never faster.
Speed speed_of(const Ratio& ratio, bool emulated);

/// One pass of a linear in both precisions.
struct ProductResult {
  std::string linear{};       ///< q,k,v; o; gate,up; down; expert gate,up; expert down
  std::string pass{};         ///< forward, dgrad, wgrad; backward: dgrad and wgrad together, which share a cast
  std::int64_t m = 0, n = 0;  ///< rows of x; outputs, summed over fused projections
  std::int64_t k = 0;         ///< inputs
  int products = 1;           ///< number of GEMMs of this size: 2 for backward
  std::int64_t layers = 0;    ///< number of such linears in the model
  bool fp8 = false;           ///< whether any GEMM of the FP8 side runs in FP8; unaligned sizes run in bf16
  Timing bf16_s{}, fp8_s{};   ///< seconds; FP8 includes the casts of all operands
  Ratio ratio{};              ///< over pairs of samples
  double cast_share = 0;      ///< share of the FP8 time in casts, 0 to 1
  /// 2 m n k times the number of GEMMs.
  double flops() const {
    return 2.0 * products * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

/// Whole optimizer steps in one precision.
struct StepsResult {
  Timing seconds{};                    ///< seconds per step, without the first step
  std::vector<double> samples{};       ///< seconds of each of these steps
  double tokens_per_s = 0;             ///< speed at the median step time
  double fp8_flop_share = 0;           ///< share of the linears' FLOPs in FP8, 0 to 1
  std::int64_t memory_peak_bytes = 0;  ///< peak of the process so far
};

/// Results of bench().
struct BenchResult {
  std::string device{};                   ///< Device::name()
  bool emulated = false;                  ///< whether FP8 is emulated (on the host)
  Peak peak{};                            ///< peak speed from the data sheet, or measured; fp8 is 0 if unknown
  std::vector<ProductResult> products{};  ///< results in the order of linears, then passes
  double bf16_s = 0, fp8_s = 0;  ///< all linears of a step: medians of forward and backward, times their number
  Ratio linears{};               ///< ratio of bf16_s to fp8_s, with the means of the ends of the linears' intervals
  std::optional<StepsResult> bf16_steps{}, fp8_steps{};  ///< nullopt with options.steps 0
  Ratio steps{};                                         ///< ratio of the times of the steps
  std::int64_t sequences = 0, length = 0;                ///< batch of a step
};

/// Runs the measurements. Steps need about 16 bytes per parameter in the folder for temporary files (TMPDIR, else
/// /tmp). Throws Error when the GPU is missing or has no FP8 tensor cores, or memory is insufficient.
BenchResult bench(const BenchOptions& options);

/// {"type": "bench", ...}: all results, with FLOP/s and shares of the peak.
json::Value to_json(const BenchOptions& options, const BenchResult& result);

}  // namespace fp8::probe
