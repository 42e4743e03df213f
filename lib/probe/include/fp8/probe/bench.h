/// FP8 beside bf16 on this machine: the products of a model's linears, casts included, and whole optimizer steps. What
/// is timed is what training runs (crate linear, crate train), not a kernel by itself. Both sides are timed in turn, so
/// that what else the machine does falls on both.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp8/device/device.h"
#include "fp8/hf/config.h"
#include "fp8/json/value.h"
#include "fp8/probe/chip.h"
#include "fp8/quant/recipe.h"

namespace fp8::probe {

/// What to measure.
struct BenchOptions {
  device::Place place = device::Place::host;           ///< where
  std::string model_name{};                            ///< for the report
  hf::Config model{};                                  ///< whose linears
  std::int64_t tokens = 0;                             ///< M, at least 1: rows of activations
  const quant::Recipe* recipe = nullptr;               ///< of the FP8 side
  double seconds = 0.5;                                ///< of measuring for each product, about
  std::int64_t steps = 0;                              ///< optimizer steps of each side; 0: none
  std::function<void(const std::string&)> progress{};  ///< what is being done; may be empty
};

/// Seconds of one call.
struct Timing {
  double median = 0;         ///< of all samples
  double low = 0;            ///< lower quartile
  double high = 0;           ///< upper quartile
  std::int64_t samples = 0;  ///< of one call or, where that is short, the mean of several
};

/// One pass of a linear on both sides.
struct ProductResult {
  std::string linear{};       ///< q,k,v; o; gate,up; down
  std::string pass{};         ///< forward, dgrad, wgrad; backward: the last two together, which share casts
  std::int64_t m = 0, n = 0;  ///< rows of x; outputs, of projections together that lie together
  std::int64_t k = 0;         ///< inputs
  int products = 1;           ///< of this size: 2 for backward
  std::int64_t layers = 0;    ///< how often a step has it
  bool fp8 = false;           ///< whether the FP8 side has any FP8 product: sizes may not allow it
  Timing bf16_s{}, fp8_s{};   ///< FP8 with the casts of all its operands
  double ratio = 0;           ///< median of bf16 over FP8, taken pair by pair: above 1, FP8 pays
  double cast_share = 0;      ///< of the FP8 side's time, the part that is casts
  /// 2 m n k of each product.
  double flops() const {
    return 2.0 * products * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

/// Whole steps of one side.
struct StepsResult {
  Timing seconds{};                    ///< of a step, the first left out
  double tokens_per_s = 0;             ///< at the median
  double fp8_flop_share = 0;           ///< of the linears' FLOPs
  std::int64_t memory_peak_bytes = 0;  ///< of the process so far
};

/// What was measured.
struct BenchResult {
  std::string device{};                   ///< as it names itself
  bool emulated = false;                  ///< FP8 is, on the host
  Peak peak{};                            ///< of the chip, or measured; fp8 0 where it is not known
  std::vector<ProductResult> products{};  ///< by linear, then pass
  double bf16_s = 0, fp8_s = 0;           ///< all linears of a step: medians of forward and backward, times layers
  std::optional<StepsResult> bf16_steps{}, fp8_steps{};  ///< where steps were asked for
  std::int64_t sequences = 0, length = 0;                ///< batch of a step
};

/// Measures. Steps need space in the folder for temporary files (TMPDIR, else /tmp): some 16 bytes a parameter. Throws
/// Error where the GPU is missing or has no FP8, or memory does not suffice.
BenchResult bench(const BenchOptions& options);

/// {"type": "bench", ...}: all of it, with FLOP/s and shares of the peak.
json::Value to_json(const BenchOptions& options, const BenchResult& result);

}  // namespace fp8::probe
