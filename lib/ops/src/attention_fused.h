/// Attention through cuDNN's fused kernels: which calls it takes, as data, and the two calls. What it does not take is
/// left to the crate's own kernels: other formats than bf16, heads that are no multiple of 8 or longer than 128, memory
/// that is not a multiple of 16 bytes, documents within a sequence, and machines without cuDNN.
/// Source: cuDNN frontend, docs/operations/Attention.md ("Important Notes on Support Surface").
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "fp8/ops/attention.h"

namespace fp8::ops {

/// What tells one graph of cuDNN from another.
struct FusedAttention {
  std::int64_t batch = 0, positions = 0, heads = 0, groups = 0, dim = 0;
  float scale = 0;        ///< of the scores
  bool backward = false;  ///< gradients, deterministic
  /// Elements between sequences, positions and heads of one tensor.
  using Strides = std::array<std::int64_t, 3>;
  Strides q{}, k{}, v{}, out{}, dout{}, dq{}, dk{}, dv{};
  /// Order without meaning, for the map.
  auto operator<=>(const FusedAttention&) const = default;

  /// Bytes of all scores' gradients in bf16, which cuDNN keeps for the sake of determinism, and for no other pass.
  std::int64_t score_bytes() const;
  /// Bytes of workspace where no device is there to ask, an estimate: for the gradients those of the scores, dk and dv
  /// of every head and two numbers a row, none for the forward pass.
  std::int64_t assumed_workspace() const;
};

/// A call cut into equal ones, which are made one after another: `sequences` times `groups` of them, each with
/// `each.batch` sequences and `each.groups` groups, from the first ones on.
struct FusedParts {
  FusedAttention each;                     ///< any of them
  std::int64_t sequences = 1, groups = 1;  ///< parts along each
};

/// Bytes of scores that a call may keep: beyond it a part keeps the chip busy by itself.
inline constexpr std::int64_t kMostScores = std::int64_t{1} << 30;

/// The fewest parts whose scores take no more than `most` bytes; one head group of one sequence is the smallest part.
FusedParts parts_of(const FusedAttention& call, std::int64_t most = kMostScores);

/// A call of attention_forward as one of cuDNN's, or nothing. The views fit each other already.
std::optional<FusedAttention> fused_forward_of(const View& q, const View& k, const View& v, float scale,
                                               const Documents& documents, const View& out);

/// A call of attention_backward. Gradients that lie in q, k or v are none of cuDNN's: its blocks read those while
/// others write.
std::optional<FusedAttention> fused_backward_of(const View& q, const View& k, const View& v, const View& out,
                                                const View& dout, float scale, const Documents& documents,
                                                const View& dq, const View& dk, const View& dv);

/// Attention forward if cuDNN takes the call: then true. Workspace comes from the arena, in a dry run too, where the
/// graph is built if the context has a stream. Throws Error when cuDNN fails at what it said it could do.
bool fused_attention_forward(const Context& ctx, const View& q, const View& k, const View& v, float scale,
                             const Documents& documents, const View& out, const View& lse);

/// The same for the gradients.
bool fused_attention_backward(const Context& ctx, const View& q, const View& k, const View& v, const View& out,
                              const View& lse, const View& dout, float scale, const Documents& documents,
                              const View& dq, const View& dk, const View& dv);

/// How many plans cuDNN proposes for a call on the device that its JSON describes, which need not be here, of this
/// compute capability (90 for 9.0): for tests. Throws Error where cuDNN is missing or refuses the graph.
std::int64_t fused_plans_for(const FusedAttention& call, int capability, const std::string& device_json);

}  // namespace fp8::ops
