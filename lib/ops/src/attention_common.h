/// Shapes of attention, and the loops of attention_forward.isa.cc and attention_backward.isa.cc. Private to this crate.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fp8/base/cpu.h"
#include "fp8/ops/attention.h"
#include "rows.h"

namespace fp8::ops {

inline constexpr std::int64_t kBlock = 64;                ///< queries and keys of a tile
inline constexpr std::int64_t kScores = kBlock * kBlock;  ///< floats of a tile of scores
inline constexpr std::int64_t kPadding =
    16;  ///< floats of the widest vector, so that memory does not depend on the CPU

/// Sizes of one call.
struct AttentionShape {
  std::int64_t batch, positions, heads, groups, dim;
  std::int64_t padded;  ///< dim rounded up to whole vectors
  std::int64_t blocks;  ///< tiles along the positions

  /// Checks all views of a call against each other; throws Error.
  AttentionShape(const View& q, const View& k, const View& v, const View& out, const View& lse,
                 const Documents& documents);
  /// Floats of a tile [kBlock, padded].
  std::int64_t tile() const { return kBlock * padded; }
  /// Number of positions in tile `block`.
  std::int64_t rows(std::int64_t block) const { return std::min(kBlock, positions - block * kBlock); }
};

/// Floats of scratch memory that a task of the forward needs.
inline std::int64_t forward_scratch(const AttentionShape& s) { return 5 * s.tile() + 2 * kScores + 3 * kBlock; }

/// Floats of scratch memory that a task of the backward needs.
inline std::int64_t backward_scratch(const AttentionShape& s) {
  return (10 + 2 * s.blocks) * s.tile() + 3 * kScores + 2 * kBlock;
}

/// Tasks of one instruction set, for activations of each type; `scratch` is not shared between threads.
template <class Call>
struct AttentionTasks {
  using Task = void (*)(const AttentionShape& shape, const Call& call, std::int64_t task, float* scratch);
  Task f32;   ///< f32 activations
  Task bf16;  ///< bf16 activations
};
/// Task b * heads * blocks + h * blocks + i is the i-th block of queries from the end, of head h of sequence b.
using ForwardKernels = AttentionTasks<AttentionForward>;
/// Task b * groups + g is key/value head g of sequence b with all its query heads.
using BackwardKernels = AttentionTasks<AttentionBackward>;
FP8_ISA_TABLES(ForwardKernels, kForwardKernels, forward_kernels)
FP8_ISA_TABLES(BackwardKernels, kBackwardKernels, backward_kernels)

}  // namespace fp8::ops
