/// Measures the rates of this machine from which fp8-plan prices a step: the operations of steps that run here, timed.
/// The format of the result is fp8-machine(5). Not the plan (fp8/plan) and not the comparison of FP8 with bf16
/// (bench.h).
#pragma once

#include <functional>
#include <string>

#include "fp8/device/device.h"
#include "fp8/json/value.h"

namespace fp8::probe {

/// What is measured.
struct RatesOptions {
  device::DeviceType device = device::DeviceType::host;  ///< device to measure
  double seconds = 50;                                   ///< approximate seconds to spend
  std::function<void(const std::string&)> progress{};    ///< called with the current measurement; may be empty
};

/// A machine file of this host, for whose ranks the rates of a CPU are shared, or of its first GPU, for each of whose
/// ranks they are. Rates between hosts, and between GPUs, are not measured; their intervals say so. Throws Error if
/// memory is insufficient.
json::Value measure_rates(const RatesOptions& options);

}  // namespace fp8::probe
