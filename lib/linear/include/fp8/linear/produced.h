/// Inputs and gradients of a linear that the operation before it casts as it computes them (fp8/quant/producer.h), on a
/// device. Results, amaxes and counts have the bits of forward() and backward() with the values.
#pragma once

#include <span>
#include <vector>

#include "fp8/linear/input.h"
#include "fp8/quant/producer.h"

namespace fp8::linear {

/// An input without values, and where the operation writes its codes.
struct ProducedInput {
  Input input;
  quant::ProducedCodes codes;
};

/// Whether an operation can write all that forward(), and with `keeps` backward(), reads of x, of which shape and type
/// are read. `amax` is f32 [1] if the operation before records the amax of x, else empty.
bool can_write_input(const Context& ctx, const Weight& weight, const View& x, const View& amax, bool keeps);

/// Allocates codes of x [rows, columns], which can_write_input() allows, and computes their scale if it follows from
/// `amax`. Codes for backward() are in memory of `kept`, those of forward() in the arena; null: backward() reads none.
ProducedInput begin_input(const Context& ctx, const Weight& weight, std::int64_t rows, std::int64_t columns,
                          const View& amax, device::PooledMemory* kept);

/// Whether an operation can write all that backward() reads of dy. `amaxes` is f32 [number of parts] if amaxes of each
/// part's columns of dy are recorded before, else empty.
bool can_write_gradient(const Context& ctx, const Weight& weight, const Gradients& wanted, const View& amaxes = {});

/// Allocates codes of dy [rows, N], which can_write_gradient() allows, for each part, and computes their scales if
/// these follow from `amaxes`; memory from the arena.
std::vector<quant::ProducedCodes> begin_gradient(const Context& ctx, const Weight& weight, std::int64_t rows,
                                                 const Gradients& wanted, const View& amaxes = {});

/// backward() with the codes of dy, bf16, of begin_gradient().
void backward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const Input& x,
              std::span<const quant::ProducedCodes> dy, const Gradients& gradients, const KnownAmaxes& amaxes = {});

}  // namespace fp8::linear
