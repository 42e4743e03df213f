// Which calls of attention are cuDNN's. Nothing here speaks to the library.
#include "attention_fused.h"

#include <algorithm>

namespace fp8::ops {
namespace {

constexpr std::int64_t kWord = 8;       // bf16 elements of 16 bytes: loads of cuDNN's kernels
constexpr std::int64_t kLongest = 128;  // elements of a head that every chip takes in both passes

// Whether cuDNN's kernels can read or write it where it lies.
bool aligned(const View& v) {
  const auto whole = [](std::int64_t stride) { return stride % kWord == 0; };
  return v.dtype == dtype::DType::bf16 && reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0 && whole(v.stride[0]) &&
         whole(v.stride[1]) && whole(v.stride[2]);
}

FusedAttention::Strides strides_of(const View& v) { return {v.stride[0], v.stride[1], v.stride[2]}; }

}  // namespace

// Source: cuDNN frontend 1.32, scaled_dot_product_flash_attention.h, "dP workspace".
std::int64_t FusedAttention::score_bytes() const {
  const std::int64_t padded = (positions + 127) / 128 * 128;
  return backward ? 2 * batch * heads * padded * padded : 0;
}

std::int64_t FusedAttention::assumed_workspace() const {
  return backward ? score_bytes() + batch * heads * positions * (4 * dim + 8) : 0;
}

FusedParts parts_of(const FusedAttention& call, std::int64_t most) {
  // The fewest equal parts of `count`, of which `fit` are to be in one.
  const auto fewest = [](std::int64_t count, std::int64_t fit) {
    std::int64_t parts = 1;
    while (count % parts != 0 || count / parts > fit) ++parts;
    return parts;
  };
  FusedParts parts{.each = call};
  if (call.score_bytes() <= most) return parts;
  const std::int64_t of_sequence = call.score_bytes() / call.batch, of_group = of_sequence / call.groups;
  parts.sequences = fewest(call.batch, std::max<std::int64_t>(1, most / of_sequence));
  parts.each.batch /= parts.sequences;
  if (parts.each.batch == 1) parts.groups = fewest(call.groups, std::max<std::int64_t>(1, most / of_group));
  parts.each.groups /= parts.groups;
  parts.each.heads /= parts.groups;
  return parts;
}

std::optional<FusedAttention> fused_forward_of(const View& q, const View& k, const View& v, float scale,
                                               const Documents& documents, const View& out) {
  const View* const views[] = {&q, &k, &v, &out};
  const bool fits = q.shape[3] % kWord == 0 && q.shape[3] <= kLongest && documents.start.rank == 0 && q.size() > 0;
  if (!fits || !std::all_of(std::begin(views), std::end(views), [](const View* x) { return aligned(*x); })) return {};
  FusedAttention call;
  call.batch = q.shape[0];
  call.positions = q.shape[1];
  call.heads = q.shape[2];
  call.groups = k.shape[2];
  call.dim = q.shape[3];
  call.scale = scale;
  call.q = strides_of(q);
  call.k = strides_of(k);
  call.v = strides_of(v);
  call.out = strides_of(out);
  return call;
}

std::optional<FusedAttention> fused_backward_of(const View& q, const View& k, const View& v, const View& out,
                                                const View& dout, float scale, const Documents& documents,
                                                const View& dq, const View& dk, const View& dv) {
  auto call = fused_forward_of(q, k, v, scale, documents, out);
  const bool in_place = dq.data == q.data || dk.data == k.data || dv.data == v.data;
  if (!call || in_place || !aligned(dout) || !aligned(dq) || !aligned(dk) || !aligned(dv)) return {};
  call->backward = true;
  call->dout = strides_of(dout);
  call->dq = strides_of(dq);
  call->dk = strides_of(dk);
  call->dv = strides_of(dv);
  return call;
}

}  // namespace fp8::ops
