/// Gradients of the output of a linear that the operation before it casts as it computes them (fp8/quant/producer.h),
/// on a device. Results, amaxes and counts have the bits of backward() with the values.
#pragma once

#include <span>
#include <vector>

#include "fp8/linear/input.h"
#include "fp8/quant/producer.h"

namespace fp8::linear {

/// Whether an operation can write all that backward() reads of dy: codes of every part, and neither adapters, a bias
/// nor an observer read values.
bool can_write_gradient(const Context& ctx, const Weight& weight, const Gradients& wanted);

/// Allocates codes of dy [rows, N], which can_write_gradient() allows, for each part; memory from the arena.
std::vector<quant::ProducedCodes> begin_gradient(const Context& ctx, const Weight& weight, std::int64_t rows,
                                                 const Gradients& wanted);

/// backward() with the codes of dy, bf16, that an operation has written to those of begin_gradient().
void backward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const Input& x,
              std::span<const quant::ProducedCodes> dy, const Gradients& gradients, const KnownAmaxes& amaxes = {});

}  // namespace fp8::linear
