/// SwiGLU, embedding, bias gradient and the loss on one block of logits. Activations f32 or bf16, arithmetic in f32,
/// one rounding, on the context's device.
#pragma once

#include <cstdint>

#include "fp8/base/target.h"
#include "fp8/ops/amax.h"
#include "fp8/tensor/tensor.h"

namespace fp8::ops {

using device::Context;
using tensor::View;

/// h [M, F] = silu(gate) * up of gate_up [M, 2F] (gate first). silu(g) = g / (1 + exp(-g)).
/// `amax` f32 [1]: of h.
void swiglu_forward(const Context& ctx, const View& gate_up, const View& h, const Amax& amax = {});

/// d_gate_up [M, 2F] from dh [M, F]; may overwrite gate_up. `amax` f32 [2]: amaxes of the gradients of gate and of up;
/// or [1]: of both.
void swiglu_backward(const Context& ctx, const View& dh, const View& gate_up, const View& d_gate_up,
                     const Amax& amax = {});

/// The part of the vocabulary that a table of embeddings has.
struct VocabularyPart {
  std::int64_t first = 0;  ///< token of its first row
  bool part = false;       ///< whether other tokens are elsewhere; otherwise they are errors
};

/// out [M, C] = rows of table [V, C] with the indices tokens i32 [M]. Ids were checked when the data was opened; an id
/// outside of the table is an Error on the host, and NaN on a device, so that the host need not wait for it; of a part
/// of the vocabulary, a row of zeros.
void embedding_forward(const Context& ctx, const View& tokens, const View& table, const View& out,
                       const VocabularyPart& part = {});

/// dtable f32 [V, C] += rows of dout [M, C]; deterministic: each row is summed in the order of the tokens.
/// On a device it needs 12 M bytes of scratch. Ids outside of the table are ignored, on a device or of a part of the
/// vocabulary.
void embedding_backward(const Context& ctx, const View& tokens, const View& dout, const View& dtable,
                        const VocabularyPart& part = {});

/// db f32 [N] += column sums of dy [M, N] (any row stride), deterministic.
void bias_backward(const Context& ctx, const View& dy, const View& db);

/// Cross-entropy of one block of logits [m, V] against targets i32 [m] (kIgnoredTarget: masked): losses f32 [m] in
/// nats (0 where ignored). With `backward` the logits are overwritten with their gradient, (softmax - onehot) *
/// gradient_scale, 0 where ignored. A target that is no token is an Error on the host, and NaN in its row on a device.
void cross_entropy(const Context& ctx, const View& logits, const View& targets, const View& losses,
                   float gradient_scale, bool backward);

/// Cross-entropy where each of several ranks has some columns of the logits, the tokens from `first` on: logit_maxima()
/// on each, the largest of the ranks, logit_sums(), the sums of the ranks, and cross_entropy_of_part().
/// out f32 [m]: the largest logit of each row of logits [m, n]
void logit_maxima(const Context& ctx, const View& logits, const View& out);
/// out f32 [2, m]: for each row the sum of exp(logit - maximum), and the logit of the target, 0 if it is another rank's
void logit_sums(const Context& ctx, const View& logits, const View& targets, std::int64_t first, const View& maxima,
                const View& out);
/// Operands and results of cross_entropy_of_part().
struct PartOfLogits {
  View logits;           ///< [m, n]: of the tokens from `first` on; overwritten with their gradient if `backward`
  View targets;          ///< i32 [m]
  std::int64_t first;    ///< token of the first column
  View maxima;           ///< f32 [m], of all ranks
  View sums;             ///< f32 [2, m], of all ranks
  View losses;           ///< result f32 [m]
  float gradient_scale;  ///< factor of the gradient
  bool backward;         ///< whether the gradient is computed
};
/// Losses, and the gradient of these logits, as cross_entropy() of all. A target that no rank has is not noticed here.
void cross_entropy_of_part(const Context& ctx, const PartOfLogits& part);

}  // namespace fp8::ops
