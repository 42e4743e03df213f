// Checks of an attention call.
#include "attention_common.h"

#include <limits>

namespace fp8::ops {
namespace {

constexpr const char* kOp = "attention";

void check_heads(const View& q, const View& v, std::int64_t heads) {
  need(v.rank == 4 && v.shape[0] == q.shape[0] && v.shape[1] == q.shape[1] && v.shape[2] == heads &&
           v.shape[3] == q.shape[3],
       kOp, "shapes do not fit");
  need(v.dtype == q.dtype, kOp, "activations of different types");
  need(unit_last_stride(v), kOp, "elements of a head must lie next to each other");
}

}  // namespace

double attention_flops(const View& q) {
  const auto positions = static_cast<double>(q.shape[1]);
  return 2.0 * static_cast<double>(q.shape[0] * q.shape[2] * q.shape[3]) * positions * (positions + 1);
}

AttentionShape::AttentionShape(const View& q, const View& k, const View& v, const View& out, const View& lse,
                               const Documents& documents) {
  need(q.rank == 4 && k.rank == 4, kOp, "q, k and v must have 4 dimensions");
  need(q.dtype == DType::f32 || q.dtype == DType::bf16, kOp, "only float32 and bfloat16 are activation types");
  batch = q.shape[0];
  positions = q.shape[1];
  heads = q.shape[2];
  groups = k.shape[2];
  dim = q.shape[3];
  need(groups > 0 && heads % groups == 0, kOp, "query heads must be a multiple of key heads");
  need(dim > 0 && positions < std::numeric_limits<std::int32_t>::max() - kBlock, kOp, "unusable extents");
  check_heads(q, q, heads);
  check_heads(q, k, groups);
  check_heads(q, v, groups);
  check_heads(q, out, heads);
  need(lse.dtype == DType::f32 && lse.rank == 3 && lse.shape[0] == batch && lse.shape[1] == heads &&
           lse.shape[2] == positions && lse.contiguous(),
       kOp, "lse must be float32, batch x heads x positions");
  const View& start = documents.start;
  need(start.rank == 0 || (start.dtype == DType::i32 && start.rank == 2 && start.shape[0] == batch &&
                           start.shape[1] == positions && start.contiguous()),
       kOp, "document starts must be int32, batch x positions");
  padded = (dim + kPadding - 1) / kPadding * kPadding;
  blocks = (positions + kBlock - 1) / kBlock;
}

}  // namespace fp8::ops
