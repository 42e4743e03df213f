// The calls of attention that cuDNN supports. The library is not called here.
#include "attention_fused.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "fp8/base/round.h"

namespace fp8::ops {
namespace {

constexpr std::int64_t kWord = 8;       // bf16 elements of 16 bytes, which cuDNN's kernels load
constexpr std::int64_t kLongest = 128;  // elements of a head that every chip supports in both passes

// Whether cuDNN's kernels can access the view.
bool aligned(const View& v) {
  const auto whole = [](std::int64_t stride) { return stride % kWord == 0; };
  return v.dtype == dtype::DType::bf16 && reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0 && whole(v.stride[0]) &&
         whole(v.stride[1]) && whole(v.stride[2]);
}

FusedAttention::Strides strides_of(const View& v) { return {v.stride[0], v.stride[1], v.stride[2]}; }

// Maximum length of a document, rounded up to one of eight multiples of a power of 2, so that few graphs are built.
std::int64_t rounded(std::int64_t longest) {
  std::int64_t step = 128;
  while (longest > 8 * step) step *= 2;
  return round_up(longest, step);
}

// Whether number and length of the call's documents, if any, are known, and positions fit 32 bits.
bool countable(const View& q, const Documents& documents) {
  return documents.start.rank == 0 || (documents.count > 0 && documents.longest > 0 &&
                                       q.shape[0] * q.shape[1] <= std::numeric_limits<std::int32_t>::max());
}

}  // namespace

// Source: cuDNN frontend 1.32, scaled_dot_product_flash_attention.h, "dP workspace".
std::int64_t FusedAttention::score_bytes() const {
  const std::int64_t padded = round_up(positions, 128);
  return backward ? 2 * batch * heads * padded * padded : 0;
}

std::int64_t FusedAttention::assumed_workspace() const {
  return backward ? score_bytes() + batch * heads * positions * (4 * dim + 8) : 0;
}

std::vector<FusedAttention::Steps> FusedAttention::steps() const {
  std::vector<Steps> all;
  const auto add = [&](const Strides& s) {
    if (std::find(all.begin(), all.end(), Steps{s[0], s[1]}) == all.end()) all.push_back({s[0], s[1]});
  };
  for (const Strides* s : {&q, &k, &v, &out, &lse}) add(*s);
  if (!backward) return all;
  for (const Strides* s : {&dout, &dq, &dk, &dv}) add(*s);
  return all;
}

FusedParts parts_of(const FusedAttention& call, std::int64_t most) {
  // The fewest equal parts of `count` with at most `fit` each.
  const auto fewest = [](std::int64_t count, std::int64_t fit) {
    std::int64_t parts = 1;
    while (count % parts != 0 || count / parts > fit) ++parts;
    return parts;
  };
  FusedParts parts{.each = call};
  FusedAttention& each = parts.each;
  if (call.documents) {
    each.batch = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(call.batch)));
    while (each.batch > 1 && each.score_bytes() > most) each.batch /= 2;
    parts.sequences = divide_up(call.batch, each.batch);
  } else if (call.score_bytes() > most) {
    parts.sequences = fewest(call.batch, std::max<std::int64_t>(1, most / (call.score_bytes() / call.batch)));
    each.batch /= parts.sequences;
  }
  if (each.batch > 1 || each.score_bytes() <= most) return parts;
  parts.groups = fewest(call.groups, std::max<std::int64_t>(1, most / (each.score_bytes() / call.groups)));
  each.groups /= parts.groups;
  each.heads /= parts.groups;
  if (!call.documents) each.lse[0] = each.heads * call.positions;  // cuDNN needs them contiguous
  return parts;
}

std::optional<FusedAttention> fused_forward_of(const View& q, const View& k, const View& v, float scale,
                                               const Documents& documents, const View& out) {
  const View* const views[] = {&q, &k, &v, &out};
  const bool fits = q.shape[3] % kWord == 0 && q.shape[3] <= kLongest && q.size() > 0 && countable(q, documents);
  if (!fits || !std::all_of(std::begin(views), std::end(views), [](const View* x) { return aligned(*x); })) return {};
  const std::int64_t sequences = q.shape[0], positions = q.shape[1];
  FusedAttention call;
  call.documents = documents.start.rank != 0;
  call.batch = call.documents ? std::min(documents.count, sequences * positions) : sequences;
  call.positions = call.documents ? rounded(std::min(documents.longest, positions)) : positions;
  call.heads = q.shape[2];
  call.groups = k.shape[2];
  call.dim = q.shape[3];
  call.scale = scale;
  call.q = strides_of(q);
  call.k = strides_of(k);
  call.v = strides_of(v);
  call.out = strides_of(out);
  call.lse = {positions * call.heads, 1, positions};
  if (call.documents) call.lse = {positions * call.heads, call.heads, 1};
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

cuda::DocumentTables document_tables(const Context& ctx, const FusedParts& parts, const std::array<View, 3>& results) {
  const std::vector<FusedAttention::Steps> steps = parts.each.steps();
  const auto arrays = static_cast<std::int64_t>(steps.size());
  cuda::DocumentTables tables{
      .lengths = tensor::allocate(ctx, dtype::DType::i32, {parts.sequences, round_up(parts.each.batch, 4)}, "scratch"),
      .offsets = tensor::allocate(ctx, dtype::DType::i64, {arrays, parts.sequences, round_up(parts.each.batch + 1, 2)},
                                  "scratch"),
      .each = parts.each.batch,
      .longest = parts.each.positions,
      .steps = {},
      .results = results};
  std::copy(steps.begin(), steps.end(), tables.steps.begin());
  return tables;
}

std::unordered_map<std::int64_t, void*> fused_pointers(const FusedAttention& call, const FusedParts& parts,
                                                       std::int64_t i, const FusedOperands& operands, const View& lse,
                                                       const cuda::DocumentTables& tables) {
  const std::int64_t first = i / parts.groups, part = i % parts.groups;
  const std::int64_t b = call.documents ? 0 : first * parts.each.batch;  // offsets count from the first sequence
  const std::int64_t h = part * parts.each.heads, g = part * parts.each.groups;
  std::unordered_map<std::int64_t, void*> pointers;
  pointers[uid_of(FusedName::lse)] = lse.as<float>() + b * call.lse[0] + h * call.lse[2];
  for (const auto& [name, view] : operands) {
    const std::int64_t head = view.shape[2] == call.heads ? h : g;
    pointers[uid_of(name)] = view.as<dtype::Bf16>() + b * view.stride[0] + head * view.stride[2];
  }
  if (!call.documents) return pointers;
  std::int32_t* const lengths = tables.lengths.as<std::int32_t>() + first * tables.lengths.stride[0];
  pointers[uid_of(FusedName::queries)] = pointers[uid_of(FusedName::keys)] = lengths;
  for (std::int64_t k = 0; k < tables.offsets.shape[0]; ++k)
    pointers[uid_of(FusedName::offsets) + k] =
        tables.offsets.as<std::int64_t>() + k * tables.offsets.stride[0] + first * tables.offsets.stride[1];
  return pointers;
}

}  // namespace fp8::ops
