/// Attention through cuDNN's fused kernels: which calls it takes, as data, and the two calls. What it does not take is
/// left to the crate's own kernels: other formats than bf16, heads that are no multiple of 8 or longer than 128, memory
/// that is not a multiple of 16 bytes, documents of unknown number or length, and machines without cuDNN.
/// To cuDNN a document is a sequence of its own, of which a table on the device says where it begins and how long it is
/// (ragged offsets and lengths): a call has as many sequences as there may be documents, and those that are not there
/// are of length 0. Statistics have heads side by side then, as all users of ragged calls have them, and are turned.
/// Source: cuDNN frontend, docs/operations/Attention.md ("Ragged Layout", "Important Notes on Support Surface").
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda.h"
#include "fp8/ops/attention.h"

namespace fp8::ops {

/// What tells one graph of cuDNN from another.
struct FusedAttention {
  std::int64_t batch = 0, positions = 0, heads = 0, groups = 0, dim = 0;
  float scale = 0;         ///< of the scores
  bool backward = false;   ///< gradients, deterministic
  bool documents = false;  ///< batch counts documents, and positions are those of the longest, rounded up
  /// Elements between sequences, positions and heads of one tensor, sequences being those of the views.
  using Strides = std::array<std::int64_t, 3>;
  Strides q{}, k{}, v{}, out{}, lse{}, dout{}, dq{}, dk{}, dv{};
  /// Order without meaning, for the map.
  auto operator<=>(const FusedAttention&) const = default;

  /// Bytes of all scores' gradients in bf16, which cuDNN keeps for the sake of determinism, and for no other pass.
  std::int64_t score_bytes() const;
  /// Bytes of workspace where no device is there to ask, an estimate: for the gradients those of the scores, dk and dv
  /// of every head and two numbers a row, none for the forward pass.
  std::int64_t assumed_workspace() const;

  /// Elements between sequences and positions.
  using Steps = std::array<std::int64_t, 2>;
  /// Those that occur, each once: tensors that share them share a table of where documents begin.
  std::vector<Steps> steps() const;
};

/// A call cut into equal ones, which are made one after another: `sequences` times `groups` of them, each with
/// `each.batch` sequences and `each.groups` groups, from the first ones on. The number of documents in a part is a
/// power of 2, so that few graphs are built; the last part may have room for more than there are.
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

/// Tensors of a call as the graph numbers them: lengths of documents' queries and keys, which are the same, and from
/// `offsets` on a table for each of the call's steps().
enum class FusedName : std::int64_t { q = 1, k, v, out, lse, dout, dq, dk, dv, queries, keys, offsets };
/// The number.
constexpr std::int64_t uid_of(FusedName name) { return static_cast<std::int64_t>(name); }

/// Views [B, T, heads, D] of a call.
using FusedOperands = std::vector<std::pair<FusedName, View>>;

/// Tables of documents for all parts of a call, taken from the arena and not filled yet; `results` as they say.
cuda::DocumentTables document_tables(const Context& ctx, const FusedParts& parts, const std::array<View, 3>& results);

/// Where part i of a call finds every tensor, by number. `lse` has the strides of the call's; tables are of documents.
std::unordered_map<std::int64_t, void*> fused_pointers(const FusedAttention& call, const FusedParts& parts,
                                                       std::int64_t i, const FusedOperands& operands, const View& lse,
                                                       const cuda::DocumentTables& tables);

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
