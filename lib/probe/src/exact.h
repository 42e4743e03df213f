/// Products whose every bit is known: small integers, whose products and sums are exact in every order, in bf16 and,
/// scaled by powers of two, in FP8. What a machine computes is right or it is not; no tolerance is needed.
#pragma once

#include <string>
#include <vector>

#include "fp8/device/device.h"
#include "fp8/quant/recipe.h"
#include "fp8/tensor/tensor.h"

namespace fp8::probe {

/// Throws Error naming the first element of `got` [rows, columns], contiguous f32 or bf16, that is not as wanted.
void check_values(const device::Context& ctx, const char* what, const tensor::View& got,
                  const std::vector<float>& wanted);

/// Runs one linear forward and backward, three products and their casts, where `device` is, and compares each with
/// sums of integers. Null recipe: bf16. Returns what was compared, for people; throws Error naming the first element
/// that is wrong, or what the device refuses.
std::string check_products(const device::Device& device, const quant::Recipe* recipe);

/// Runs attention forward in bf16 where `device` is and compares it with the host's, within what bf16 rounds. Returns
/// the largest difference; throws Error when it is too large.
double check_attention(const device::Device& device);

/// The sum over one rank where `device` is, which is what was given; through NCCL on a GPU. Throws Error when it is
/// not.
void check_all_reduce(const device::Device& device);

}  // namespace fp8::probe
