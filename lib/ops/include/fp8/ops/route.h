/// Mixtures of experts: the choice of experts by a router, the order of rows by expert, the sums over a token's
/// experts, and the gradients of all these. Rows are in the order of experts, those of one expert in the order of their
/// tokens. Arithmetic in f32, results rounded once. The host gives the same bits for any number of threads and every
/// instruction set. A GPU gives the same bits in each run; it has another order than the host only for the sums of
/// add_route_sums() and of dot products. Views are contiguous and on the context's device.
///   M tokens, E experts, k of them for each token, N = k M rows (below 2^31), some without a token, C hidden
/// Source: transformers modeling_mixtral.py, modeling_qwen3_moe.py; Switch Transformers, arXiv:2101.03961, for the loss
/// that balances experts; ST-MoE, arXiv:2202.08906, for the loss of the logits.
#pragma once

#include <cstdint>

#include "fp8/tensor/tensor.h"

namespace fp8::ops {

using device::Context;
using tensor::View;

/// How a router chooses.
struct RouteOptions {
  bool normalize = true;    ///< the weights of a token's experts are divided by their sum
  std::int64_t length = 0;  ///< T, tokens of a sequence; used with `lengths`
  View lengths{};           ///< i32, one for each sequence: its tokens that are routed; the others are padding, have no
                            ///< experts and count nowhere. Empty: all are routed
  std::int64_t first = 0;   ///< number of the first of the M tokens among those of all sequences
};

/// What a router has chosen.
struct Routes {
  View probabilities;  ///< f32 [M, E]: softmax of the logits; 0 for padding
  View log_sums;       ///< f32 [M]: logarithm of the sum of the exponentials of the logits; 0 for padding
  View experts;        ///< i32 [M, k]: the experts with the k largest probabilities, ascending; of equal probabilities
                       ///< the lower numbers; -1 for padding
  View weights;        ///< f32 [M, k]: weights of these experts; 0 for padding
  View rows;           ///< i32 [M, k]: the row of the token for each of these experts; -1 for padding
  View tokens;         ///< i32 [N]: the token of each row; -1 for rows that padding leaves over, which are the last
  View counts;         ///< i32 [E]: rows of each expert

  /// k.
  std::int64_t per_token() const { return experts.shape[1]; }
};

/// Fills `routes` from logits f32 [M, E]. A NaN or +infinity among the logits of a token, or only -infinity, gives NaN
/// probabilities and weights, and experts 0 to k - 1. Needs an arena.
void route_forward(const Context& ctx, const View& logits, const RouteOptions& options, const Routes& routes);

/// Adds to sums f64 [E + 2] the sum of each expert's probability over the tokens, the sum of the squares of log_sums,
/// and the number of tokens without padding. Needs an arena.
void add_route_sums(const Context& ctx, const Routes& routes, const View& sums);

/// out [R, C], f32 or bf16 as x: row r is row tokens[r] of x [M, C], tokens i32 [R], such as Routes::tokens; where that
/// is -1, it is not written.
void gather_rows(const Context& ctx, const View& x, const View& tokens, const View& out);

/// out [M, C] = sum over a token's experts, ascending, of weight x row of y [N, C], in f32, rounded once; 0 for
/// padding. y and out are both f32 or both bf16.
void combine_rows(const Context& ctx, const View& y, const Routes& routes, const View& out);

/// Gradients of combine_rows(): dy [N, C] = weight x dout of the row's token, rounded once (may be y), and dweights f32
/// [M, k] = dot products of dout and rows of y in f32 (0 for padding). Rows without a token are not written.
void combine_rows_backward(const Context& ctx, const View& dout, const View& y, const Routes& routes, const View& dy,
                           const View& dweights);

/// Gradient of gather_rows() and of the router's input: out [M, C] = sum over a token's experts, ascending, of rows of
/// dx [N, C], then of the token's row of `addend` f32 [M, C], in f32, rounded once.
void sum_rows(const Context& ctx, const View& dx, const Routes& routes, const View& addend, const View& out);

/// Gradients of losses that balance experts, for each token.
struct BalanceGradients {
  View aux{};   ///< f32 [E]: gradient of the objective by each probability of a token; empty: 0
  float z = 0;  ///< gradient of the objective by the square of a token's log_sum
};

/// dlogits f32 [M, E] from the gradient of the weights, dweights f32 [M, k], and from the losses that balance; 0 for
/// padding. dlogits may not be probabilities.
void route_backward(const Context& ctx, const View& dweights, const Routes& routes, bool normalize,
                    const BalanceGradients& balance, const View& dlogits);

}  // namespace fp8::ops
