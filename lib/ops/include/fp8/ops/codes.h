/// Operations that cast their results as they compute them, on a device, bf16: codes and scales have the bits of the
/// operation of norm.h or elementwise.h followed by a cast, and the bf16 result does not pass through memory.
/// `to` is of quant::begin_produced() or begin_produced_groups() with the shape of the
/// result.
#pragma once

#include <array>

#include "fp8/ops/amax.h"
#include "fp8/quant/producer.h"

namespace fp8::ops {

using device::Context;
using tensor::View;

/// Codes of norm(x), given rstd f32 [M] of rmsnorm_forward() or add_rmsnorm_forward(), which need not write y then.
///   x [M, C], weight [C]
void rmsnorm_codes(const Context& ctx, const View& x, const View& weight, const View& rstd,
                   const quant::ProducedCodes& to);

/// Codes of swiglu_forward(): gate_up [M, 2F] to codes [M, F], of one matrix or of groups of rows.
void swiglu_codes(const Context& ctx, const View& gate_up, const quant::ProducedCodes& to);
void swiglu_codes(const Context& ctx, const View& gate_up, const quant::ProducedGroups& to);

/// Codes of the gradients of gate and of up, [M, F] each, of swiglu_backward(): dh [M, F], gate_up [M, 2F]. Both have
/// the same casts, and the same groups.
void swiglu_backward_codes(const Context& ctx, const View& dh, const View& gate_up,
                           const std::array<quant::ProducedCodes, 2>& to);
void swiglu_backward_codes(const Context& ctx, const View& dh, const View& gate_up,
                           const std::array<quant::ProducedGroups, 2>& to);

/// What the gradient of a block of logits [M, V] needs of its rows. Values of ignored rows are undefined.
struct LossRows {
  View largest;  ///< result f32 [M]: the largest logit
  View inverse;  ///< result f32 [M]: 1 / (sum of exp(logit - largest)); NaN if the target is no token
  Amax amax{};   ///< result f32 [1]: amax of the gradient
};

/// The losses of cross_entropy() (elementwise.h), and `rows` for cross_entropy_codes(). Reads the logits a second time
/// if the amax is wanted, and leaves them as they are.
void cross_entropy_rows(const Context& ctx, const View& logits, const View& targets, const View& losses,
                        float gradient_scale, const LossRows& rows);

/// Codes of the gradient that cross_entropy() would write in place of the logits [M, V], 0 in ignored rows.
void cross_entropy_codes(const Context& ctx, const View& logits, const View& targets, float gradient_scale,
                         const LossRows& rows, const quant::ProducedCodes& to);

}  // namespace fp8::ops
