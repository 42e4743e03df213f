/// Attention through cuDNN's fused kernels: the supported calls as data, and their execution. Other formats than bf16,
/// heads that are not a multiple of 8 or longer than 128, memory that is not aligned to 16 bytes and documents of
/// unknown number or length are refused.
/// For cuDNN, a document is a sequence, whose begin and length are in tables on the device (ragged offsets and
/// lengths): a call has as many sequences as the maximum number of documents, and missing ones have length 0.
/// Statistics then have adjacent heads, as in all known uses of ragged calls, and are transposed. Private to this
/// crate. Source: cuDNN frontend, docs/operations/Attention.md ("Ragged Layout", "Important Notes on Support Surface").
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda.h"
#include "fp8/ops/attention.h"

namespace fp8::ops {

/// How the gradient of q is summed over the blocks of keys. scores: the gradients of all scores are stored in bf16 and
/// multiplied by k. ordered: in f32, the blocks of a head one after the other; cuDNN 9.25 or newer, compute capability
/// 9. atomic: in f32, in the order in which blocks finish, which differs between runs.
enum class FusedSums : std::uint8_t { scores, ordered, atomic };

/// The key of a graph of cuDNN.
struct FusedAttention {
  std::int64_t batch = 0, positions = 0, heads = 0, groups = 0, dim = 0;
  float scale = 0;                     ///< factor of the scores
  bool backward = false;               ///< gradients
  bool documents = false;              ///< batch counts documents, and positions the length of the longest, rounded up
  FusedSums sums = FusedSums::scores;  ///< how sums of gradients are computed
  /// Elements between sequences (of the views), positions and heads of one tensor.
  using Strides = std::array<std::int64_t, 3>;
  Strides q{}, k{}, v{}, out{}, lse{}, dout{}, dq{}, dk{}, dv{};
  /// Any total order, for the map.
  auto operator<=>(const FusedAttention&) const = default;

  /// Bytes of the gradients of all scores, if they are stored.
  std::int64_t score_bytes() const;
  /// Estimated bytes of workspace without a device: for the backward pass those of the scores or of dq in f32, dk and
  /// dv of every head, and two elements per row; none for the forward pass.
  std::int64_t assumed_workspace() const;

  /// Elements between sequences and positions.
  using Steps = std::array<std::int64_t, 2>;
  /// The distinct steps of all tensors: tensors with the same steps share a table of offsets.
  std::vector<Steps> steps() const;
};

/// A call divided into `sequences` times `groups` equal calls, executed one after the other, each with `each.batch`
/// sequences and `each.groups` groups. The number of documents in a part is a power of 2, so that few graphs are built;
/// the last part may have room for more documents than there are.
struct FusedParts {
  FusedAttention each;                     ///< one part
  std::int64_t sequences = 1, groups = 1;  ///< number of parts along each
};

/// The hint of an error when a library that attention needs is missing.
inline constexpr const char* kInstallCudnn = "install cuDNN 9, or add its folder to LD_LIBRARY_PATH";

/// Maximum bytes of scores of a call; a part of that size uses the whole chip.
inline constexpr std::int64_t kMostScores = std::int64_t{1} << 30;

/// The fewest parts with at most `most` bytes of scores each. The smallest part is one head group of one sequence. If
/// all parts together have more, and `ordered` tells that the library has ordered sums, they are used instead: parts
/// run one after the other, and their scores are written and read. Sequences need no division then; documents, of which
/// fewer than the maximum number may exist, are divided so that a part needs at most `most` bytes of workspace.
FusedParts parts_of(const FusedAttention& call, bool ordered, std::int64_t most = kMostScores);

/// Whether the library of a context has ordered sums. Without a stream, for a plan, the library that is found here
/// decides, for an H100; if there is none, an older one is assumed, which takes more memory.
bool has_ordered_sums(const Context& ctx);

/// Throws Error "attention: cuDNN: reason", with --attention plain as a hint.
[[noreturn]] void refuse(const std::string& reason);

/// A call of attention_forward for cuDNN. The views have been checked and are not empty. Throws Error as refuse() if
/// cuDNN does not support the call.
FusedAttention fused_forward_of(const View& q, const View& k, const View& v, float scale, const Documents& documents,
                                const View& out);

/// The plan of attention_backward. In-place gradients are not supported, because cuDNN's blocks read q, k and v while
/// others write.
FusedAttention fused_backward_of(const AttentionBackward& of, bool deterministic);

/// Numbers of the tensors of a graph: lengths of the queries and keys of documents, which are equal, and from `offsets`
/// on one table for each of steps().
enum class FusedName : std::int64_t { q = 1, k, v, out, lse, dout, dq, dk, dv, queries, keys, offsets };
/// The number of a tensor.
constexpr std::int64_t uid_of(FusedName name) { return static_cast<std::int64_t>(name); }

/// Views [B, T, heads, D] of a call.
using FusedOperands = std::vector<std::pair<FusedName, View>>;

/// Tables of documents for all parts of a call, allocated from the arena, not filled; `results` as in DocumentTables.
cuda::DocumentTables document_tables(const Context& ctx, const FusedParts& parts, const std::array<View, 3>& results);

/// Addresses of the tensors of part i of a call, by number. `lse` has the strides of the call; `tables` for documents.
std::unordered_map<std::int64_t, void*> fused_pointers(const FusedAttention& call, const FusedParts& parts,
                                                       std::int64_t i, const FusedOperands& operands, const View& lse,
                                                       const cuda::DocumentTables& tables);

/// Runs attention_forward. Workspace is allocated from the arena, also in a dry run, in which the graph is built if the
/// context has a stream; without one cuDNN is assumed to have a plan. Throws Error as refuse() if cuDNN is missing,
/// does not support the call or has no plan for it, and Error if it fails to run the plan.
void fused_attention_forward(const Context& ctx, const AttentionForward& of);

/// What a call of attention needs beside reading its operands and writing its results once a kernel.
struct FusedCost {
  int launches = 0;  ///< kernels, of which cuDNN has one in a forward and three in a backward pass of a part
  double bytes = 0;  ///< workspace, written and read
};
/// The cost of attention of q [B, T, H, D] and `groups` key heads.
FusedCost fused_cost(const Context& ctx, const View& q, std::int64_t groups, const Documents& documents,
                     bool deterministic, bool backward);

/// Computes attention_backward with cuDNN.
void fused_attention_backward(const Context& ctx, const AttentionBackward& of, bool deterministic);

/// The library on the stream of a context. In builds without CUDA, which have no streams, these throw Error.
namespace cudnn {

/// A graph with a plan, which the stream keeps.
struct Plan {
  void* graph = nullptr;       ///< null without a stream
  std::int64_t workspace = 0;  ///< bytes
};

/// The plan of a part. Throws Error as refuse() if cuDNN is missing or has none.
Plan plan(const Context& ctx, const FusedAttention& part);
/// Enqueues the plan that plan() returned last. Throws Error if cuDNN fails.
void run(const Context& ctx, const Plan& plan, std::unordered_map<std::int64_t, void*>& pointers, void* workspace);
/// Compute capability of the device, 90 for 9.0.
int capability(const Context& ctx);

}  // namespace cudnn

}  // namespace fp8::ops
