/// Inputs and gradients of a linear that the operation before it casts as it computes them (fp8/quant/producer.h), on a
/// device. Results, amaxes and counts have the bits of forward() and backward() with the values.
#pragma once

#include <span>
#include <vector>

#include "fp8/linear/groups.h"
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

/// The same for groups of rows, with the bits of forward_groups() and backward_groups(): whether an operation can write
/// all that forward, and with `keeps` backward, reads of x [M, K] of all groups, of which shape and type are read, M
/// rows being the most that there can be.
bool can_write_input(const Context& ctx, std::span<const Weight> weights, const View& x, bool keeps);

/// Allocates codes of x of all groups, which can_write_input() allows. With memory in `keep` there are codes for
/// backward in it; those of forward are in the arena. The rows of a plan of memory are divided as forward_groups()
/// does.
quant::ProducedGroups begin_input(const Context& ctx, const Groups& groups, std::int64_t columns,
                                  const quant::KeptGroups& keep);

/// forward_groups() with the codes of x, bf16, of begin_input(). Returns those for backward, if there are any.
std::vector<quant::Quantized> forward_groups(const Context& ctx, gemm::Engine& engine, std::span<const Weight> weights,
                                             const quant::ProducedGroups& x, const View& y);

/// Whether an operation can write all that backward reads of dy [M, N] of all groups, of which shape and type are read.
/// In a plan of memory delayed scales count as known, since they become so; the first steps need the memory of
/// backward_groups() with dy besides.
bool can_write_gradient(const Context& ctx, std::span<const Weight> weights, const GroupInput& x, const View& dy,
                        const Gradients& wanted);

/// Allocates codes of dy of all groups, which can_write_gradient() allows, for each part; memory from the arena.
std::vector<quant::ProducedGroups> begin_gradient(const Context& ctx, const Groups& groups, const Gradients& wanted);

/// backward_groups() with the codes of dy, bf16, of begin_gradient().
void backward_groups(const Context& ctx, gemm::Engine& engine, std::span<const Weight> weights, const GroupInput& x,
                     std::span<const quant::ProducedGroups> dy, const Gradients& gradients);

}  // namespace fp8::linear
