/// Operations that cast their results as they compute them, on a device, bf16: codes and scales have the bits of the
/// operation of norm.h or elementwise.h followed by a cast, and the bf16 result does not pass through memory.
/// `to` is of quant::begin_produced() with the shape of the result.
#pragma once

#include <array>

#include "fp8/quant/producer.h"

namespace fp8::ops {

using device::Context;
using tensor::View;

/// Codes of norm(x), given rstd f32 [M] of rmsnorm_forward() or add_rmsnorm_forward(), which need not write y then.
///   x [M, C], weight [C]
void rmsnorm_codes(const Context& ctx, const View& x, const View& weight, const View& rstd,
                   const quant::ProducedCodes& to);

/// Codes of swiglu_forward(): gate_up [M, 2F] to codes [M, F].
void swiglu_codes(const Context& ctx, const View& gate_up, const quant::ProducedCodes& to);

/// Codes of the gradients of gate and of up, [M, F] each, of swiglu_backward(): dh [M, F], gate_up [M, 2F]. Both have
/// the same casts.
void swiglu_backward_codes(const Context& ctx, const View& dh, const View& gate_up,
                           const std::array<quant::ProducedCodes, 2>& to);

}  // namespace fp8::ops
