/// Linear layers of groups of rows, as the experts of a mixture have them: the rows of x are divided into consecutive
/// groups, each with a weight of its own under the recipe, as if it were a layer alone: scales, amaxes and blocks
/// begin with its first row. A group without rows runs no GEMM; its gradients are zero. An AmaxReducer is called for
/// groups with rows only, so that all of its ranks must have rows in the same groups.
///   x [M, K], groups of N columns: y and dy [M, N]
/// On a device with bf16 activations the rows of all groups are cast together, where quant::casts_groups() allows: at
/// most four launches for an operand and part, whatever the number of groups up to 512, and the casts of all groups are
/// in memory at once. One grouped GEMM of cuBLASLt then serves all groups in each of forward, dgrad and wgrad, if the
/// recipe casts to FP8 with one scale for a tensor, or not at all; gemm::Engine::matmul() of several products names the
/// libraries and chips that have such GEMMs. Under other recipes one GEMM of each group follows the other. So do casts
/// too with an Observer that is active, which launches more kernels than they do, and where no GPU is fast or no model
/// is such: blocks that are emulated, a number of columns that 16 does not divide, and an AmaxReducer or tensor
/// parallelism of the weights, which Layout gives to no experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fp8/linear/input.h"
#include "fp8/quant/groups.h"

namespace fp8::linear {

/// Groups of rows and their weights.
struct Groups {
  std::span<const Weight> weights;      ///< one for each group, all [N, K], prepared for the pass
  std::span<const std::int64_t> first;  ///< groups + 1 rows: group g has the rows [first[g], first[g + 1])
};

/// The input of groups as backward_groups() reads it: x itself, or codes for wgrad in place of it.
struct GroupInput {
  View values{};                            ///< [M, K]; empty: there are codes
  std::vector<quant::Quantized> columns{};  ///< codes of each group, which contract its rows; empty: x is read
};

/// Whether forward_groups() can leave codes of x [M, K] to backward, of which shape and type are read, M rows being the
/// most that there can be: on a device, where the casts of groups are together, backward reads no more than the codes
/// (forms_kept()), and they take less memory than x. The weights are prepared for Pass::forward; with Pass::recompute
/// their observer is unknown.
bool keeps_codes(const Context& ctx, std::span<const Weight> weights, const View& x);

/// Rows of all a, and of all b, of the adapters of some weights.
struct AdapterRows {
  std::int64_t a = 0;  ///< of Gradients::a
  std::int64_t b = 0;  ///< of Gradients::b
};
/// The sum over the adapters of `weights`.
AdapterRows adapter_rows(std::span<const Weight> weights);

/// Computes y = x w^T of each group, with adapters. y has x's dtype. With memory in `keep` and keeps_codes(), x is cast
/// once for both passes, and the codes of all groups for wgrad, which stay in that memory, are returned; else none.
std::vector<quant::Quantized> forward_groups(const Context& ctx, gemm::Engine& engine, const Groups& groups,
                                             const View& x, const View& y, const quant::KeptGroups& keep = {});

/// Gradients of all groups, with the weights of one group after those of the other. Members as in Gradients: dw
/// [groups N, K], a and b those of the adapters of all groups. Results, amaxes and counts of casts have the same bits
/// with x and with codes of forward_groups().
void backward_groups(const Context& ctx, gemm::Engine& engine, const Groups& groups, const GroupInput& x,
                     const View& dy, const Gradients& gradients);

}  // namespace fp8::linear
