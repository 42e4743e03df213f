/// GEMMs of small integers, whose products and sums are exact in every order, in bf16 and, scaled by powers of two, in
/// FP8. Results are compared bit by bit, without a tolerance.
#pragma once

#include <string>
#include <vector>

#include "fp8/device/device.h"
#include "fp8/quant/recipe.h"
#include "fp8/tensor/tensor.h"

namespace fp8::probe {

/// Throws Error naming the first element of `got` [rows, columns], contiguous f32 or bf16, that differs from `wanted`.
void check_values(const device::Context& ctx, const char* what, const tensor::View& got,
                  const std::vector<float>& wanted);

/// Runs one linear forward and backward (three GEMMs and their casts) on `device` and compares the results with integer
/// sums. Null recipe: bf16. Returns the detail text of the check; throws Error naming the first wrong element, and
/// errors of the device.
std::string check_products(const device::Device& device, const quant::Recipe* recipe);

/// Runs attention forward in bf16 on `device` and on the host. Returns the largest difference; throws Error when it
/// exceeds the rounding error of bf16.
double check_attention(const device::Device& device);

/// Runs an all-reduce over one rank on `device`, through NCCL on a GPU. Throws Error unless the result equals the
/// input.
void check_all_reduce(const device::Device& device);

}  // namespace fp8::probe
