/// The products of a model's linears, timed.
#pragma once

#include <vector>

#include "fp8/probe/bench.h"

namespace fp8::probe {

/// Every linear of a decoder layer, forward, dgrad and wgrad, where `device` is.
std::vector<ProductResult> time_products(const device::Device& device, const BenchOptions& options);

/// FLOP/s of a large bf16 product on `device`: what a chip without a data sheet is measured by.
double measured_peak(const device::Device& device);

}  // namespace fp8::probe
