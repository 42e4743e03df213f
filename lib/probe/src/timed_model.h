/// Steps of a model that run on a device and are timed operation by operation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fp8/device/device.h"
#include "fp8/device/profile.h"

namespace fp8::probe {

/// A model whose steps are timed.
struct TimedModelOptions {
  std::string preset;             ///< preset whose configuration the model has
  std::vector<std::string> keys;  ///< KEY=VALUE of the configuration that differ
  std::string recipe;             ///< recipe of the linears, or bf16 or fp32
  std::int64_t longest = 0;       ///< tokens of the longest sequence
};

/// The model on one rank, as fp8-step assembles it, with initial weights and random tokens.
class TimedModel {
 public:
  /// Assembles the model and runs a step of the longest sequence. Throws Error when memory is insufficient.
  TimedModel(const device::Device& device, const TimedModelOptions& options);
  ~TimedModel();
  TimedModel(const TimedModel&) = delete;
  TimedModel& operator=(const TimedModel&) = delete;
  /// The operations of `count` steps of one sequence of `tokens` tokens, after a step that is not timed.
  std::vector<device::Span> steps(std::int64_t tokens, int count);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace fp8::probe
