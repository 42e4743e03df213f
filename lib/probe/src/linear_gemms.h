/// Times the GEMMs of a model's linears.
#pragma once

#include <vector>

#include "fp8/probe/bench.h"

namespace fp8::probe {

/// Times every linear of a decoder layer on `device`: forward, dgrad, wgrad, and backward (dgrad and wgrad together).
std::vector<ProductResult> time_products(const device::Device& device, const BenchOptions& options);

/// FLOP/s of a large bf16 GEMM on `device`, timed for about `seconds`: the peak of a chip that known_peak() lacks.
double measured_peak(const device::Device& device, double seconds);

}  // namespace fp8::probe
