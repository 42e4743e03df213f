// The calls of attention that cuDNN supports, their division into parts, memory and execution. The library itself is
// called in attention_cudnn.cu. Its statistics are max + ln(sum exp) of the scaled scores, [B, H, T, 1] in f32, which
// is our lse; with documents they are [B, T, H], in scratch.
#include "attention_fused.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <limits>

#include "fp8/base/error.h"
#include "fp8/base/resources.h"
#include "fp8/base/round.h"
#include "fp8/device/library.h"
#include "fp8/device/profile.h"

namespace fp8::ops {
namespace {

constexpr std::int64_t kWord = 8;         // bf16 elements of 16 bytes, which cuDNN's kernels load
constexpr std::int64_t kLongest = 128;    // elements of a head that every chip supports in both passes
constexpr std::int64_t kOrdered = 92500;  // first version of cuDNN with ordered sums, on chips of this generation:
constexpr int kHopper = 90, kAfterHopper = 100;

// Whether cuDNN's kernels can load the view.
bool aligned(const View& v) {
  const auto whole = [](std::int64_t stride) { return stride % kWord == 0; };
  return reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0 && whole(v.stride[0]) && whole(v.stride[1]) &&
         whole(v.stride[2]);
}

void need_aligned(std::initializer_list<const View*> views) {
  if (!std::all_of(views.begin(), views.end(), [](const View* v) { return aligned(*v); }))
    refuse("needs rows that begin at multiples of 16 bytes");
}

FusedAttention::Strides strides_of(const View& v) { return {v.stride[0], v.stride[1], v.stride[2]}; }

// Maximum length of a document, rounded up to one of eight multiples of a power of 2, so that few graphs are built.
std::int64_t rounded(std::int64_t longest) {
  std::int64_t step = 128;
  while (longest > 8 * step) step *= 2;
  return round_up(longest, step);
}

// Number and length of the call's documents, if any, must be known, and positions fit 32 bits.
void need_countable(const View& q, const Documents& documents) {
  if (documents.start.rank == 0) return;
  if (documents.count <= 0 || documents.longest <= 0) refuse("needs the number and length of documents");
  if (q.shape[0] * q.shape[1] > std::numeric_limits<std::int32_t>::max()) refuse("has 32 bits for positions");
}

// The extents of a call for q [B, T, H, D] and `groups` key heads.
FusedAttention extents_of(const View& q, std::int64_t groups, const Documents& documents) {
  const std::int64_t sequences = q.shape[0], positions = q.shape[1];
  FusedAttention call;
  call.documents = documents.start.rank != 0;
  call.batch = call.documents ? std::min(documents.count, sequences * positions) : sequences;
  call.positions = call.documents ? rounded(std::min(documents.longest, positions)) : positions;
  call.heads = q.shape[2];
  call.groups = groups;
  call.dim = q.shape[3];
  return call;
}

std::int64_t library_version() {
  check_room(std::size_t{64} << 20U, "cuDNN");  // it aborts if a library that it loads cannot be mapped
  const device::Library library({"libcudnn.so.9"}, kInstallCudnn);
  return static_cast<std::int64_t>(library.function<std::size_t (*)()>("cudnnGetVersion")());
}

// The version of the library that is found, or 0.
std::int64_t version_or_0() {
  try {
    return library_version();
  } catch (const Error&) {
    return 0;
  }
}

// Compute capability of the device, or without a stream of the one that is planned for, by default an H100.
int capability_of(const Context& ctx) {
  if (ctx.stream != nullptr) return cudnn::capability(ctx);
  const int planned = device::planned(ctx) ? ctx.profile->compute_capability : 0;
  return planned > 0 ? planned : kHopper;
}

// Whether a library can have ordered sums on the chip.
bool chip_orders(const Context& ctx) {
  const int capability = capability_of(ctx);
  return capability >= kHopper && capability < kAfterHopper;
}

// Runs all parts of a call, which are equal. `lse` is read by gradients, else written.
void run_parts(const Context& ctx, const FusedAttention& call, const Documents& documents,
               const FusedOperands& operands, const View& lse, const std::array<View, 3>& results) {
  const FusedParts parts = parts_of(call, call.backward && has_ordered_sums(ctx));
  const cudnn::Plan plan =
      ctx.stream == nullptr ? cudnn::Plan{nullptr, parts.each.assumed_workspace()} : cudnn::plan(ctx, parts.each);
  const device::Scope scope(*ctx.arena);
  cuda::DocumentTables tables;
  View statistics = lse;
  if (call.documents) {
    tables = document_tables(ctx, parts, results);
    statistics = tensor::allocate(ctx, dtype::DType::f32, {lse.shape[0], lse.shape[2], lse.shape[1]}, "scratch");
  }
  const View workspace = tensor::allocate(ctx, dtype::DType::u8, {plan.workspace}, "attention workspace");
  if (ctx.dry) return;
  if (call.documents) {
    cuda::attention_documents(ctx, documents, tables);
    if (call.backward) cuda::transpose(ctx, lse, statistics);
  }
  for (std::int64_t i = 0; i < parts.sequences * parts.groups; ++i) {
    auto pointers = fused_pointers(call, parts, i, operands, statistics, tables);
    cudnn::run(ctx, plan, pointers, workspace.data);
  }
  if (call.documents && !call.backward) cuda::transpose(ctx, statistics, lse);
}

}  // namespace

// A plan of time is of the newest library.
bool has_ordered_sums(const Context& ctx) {
  return chip_orders(ctx) && (device::planned(ctx) || version_or_0() >= kOrdered);
}

std::string attention_library() {
  const std::int64_t version = library_version();
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

std::string attention_library_advice() {
  if (library_version() >= kOrdered) return {};
  return "before 9.25, on compute capability 9.0, deterministic gradients of long sequences store all scores, "
         "which takes longer: install cuDNN 9.25 or newer (nvidia-cudnn-cu13)";
}

GradientBytes gradient_bytes(const Context& ctx, const View& q, std::int64_t groups, const Documents& documents) {
  FusedAttention call = extents_of(q, groups, documents);
  call.backward = true;
  const auto bytes = [&](FusedSums sums) {
    call.sums = sums;
    const FusedParts parts = parts_of(call, false);
    return 2.0 * static_cast<double>(parts.each.assumed_workspace()) *
           static_cast<double>(parts.sequences * parts.groups);
  };
  const double sums = bytes(FusedSums::atomic), scores = bytes(FusedSums::scores);
  const bool ordered = parts_of(call, true).each.sums == FusedSums::ordered, has = has_ordered_sums(ctx);
  return {scores, sums, ordered && has, ordered && !has && chip_orders(ctx) && version_or_0() > 0};
}

FusedCost fused_cost(const Context& ctx, const View& q, std::int64_t groups, const Documents& documents,
                     bool deterministic, bool backward) {
  FusedAttention call = extents_of(q, groups, documents);
  call.backward = backward;
  call.sums = deterministic ? FusedSums::scores : FusedSums::atomic;
  const FusedParts parts = parts_of(call, backward && has_ordered_sums(ctx));
  const std::int64_t count = parts.sequences * parts.groups;
  constexpr int kForward = 1, kBackward = 3, kOfDocuments = 2;  // lengths and offsets; statistics
  return {static_cast<int>(count) * (backward ? kBackward : kForward) + (call.documents ? kOfDocuments : 0),
          2.0 * static_cast<double>(parts.each.assumed_workspace() * count)};
}

void refuse(const std::string& reason) {
  throw Error("attention: cuDNN: " + reason, {{"attention", "plain: slower kernels, which do without cuDNN"}});
}

// Source: cuDNN frontend 1.32, scaled_dot_product_flash_attention.h, "dP workspace".
std::int64_t FusedAttention::score_bytes() const {
  const std::int64_t padded = round_up(positions, 128);
  return backward && sums == FusedSums::scores ? 2 * batch * heads * padded * padded : 0;
}

std::int64_t FusedAttention::assumed_workspace() const {
  const std::int64_t sum = sums == FusedSums::scores ? 0 : 4 * dim;
  const std::int64_t copies = heads == groups ? 0 : 4 * dim;  // dk and dv of the query heads, which are then added
  return backward ? score_bytes() + batch * heads * positions * (sum + copies + 8) : 0;
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

FusedParts parts_of(const FusedAttention& wanted, bool ordered, std::int64_t most) {
  FusedAttention call = wanted;
  if (ordered && call.score_bytes() > most) call.sums = FusedSums::ordered;
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
    const auto bytes = [&] { return each.sums == FusedSums::scores ? each.score_bytes() : each.assumed_workspace(); };
    while (each.batch > 1 && bytes() > most) each.batch /= 2;
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

FusedAttention fused_forward_of(const View& q, const View& k, const View& v, float scale, const Documents& documents,
                                const View& out) {
  if (q.dtype != dtype::DType::bf16) refuse("needs bf16 activations");
  if (q.shape[3] % kWord != 0 || q.shape[3] > kLongest)
    refuse("needs heads of 8, 16, ... 128 elements, not " + std::to_string(q.shape[3]));
  need_countable(q, documents);
  need_aligned({&q, &k, &v, &out});
  const std::int64_t positions = q.shape[1];
  FusedAttention call = extents_of(q, k.shape[2], documents);
  call.scale = scale;
  call.q = strides_of(q);
  call.k = strides_of(k);
  call.v = strides_of(v);
  call.out = strides_of(out);
  call.lse = {positions * call.heads, 1, positions};
  if (call.documents) call.lse = {positions * call.heads, call.heads, 1};
  return call;
}

FusedAttention fused_backward_of(const AttentionBackward& of, bool deterministic) {
  const View &dout = of.dout, &dq = of.dq, &dk = of.dk, &dv = of.dv;
  FusedAttention call = fused_forward_of(of.q, of.k, of.v, of.scale, of.documents, of.out);
  if (dq.data == of.q.data || dk.data == of.k.data || dv.data == of.v.data) refuse("cannot compute gradients in place");
  need_aligned({&dout, &dq, &dk, &dv});
  call.backward = true;
  call.sums = deterministic ? FusedSums::scores : FusedSums::atomic;
  call.dout = strides_of(dout);
  call.dq = strides_of(dq);
  call.dk = strides_of(dk);
  call.dv = strides_of(dv);
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

void fused_attention_forward(const Context& ctx, const AttentionForward& of) {
  const auto& [q, k, v, scale, documents, out, lse] = of;
  const FusedAttention call = fused_forward_of(q, k, v, scale, documents, out);
  run_parts(ctx, call, documents, {{FusedName::q, q}, {FusedName::k, k}, {FusedName::v, v}, {FusedName::out, out}}, lse,
            {out, out, out});
}

void fused_attention_backward(const Context& ctx, const AttentionBackward& of, bool deterministic) {
  const FusedAttention call = fused_backward_of(of, deterministic);
  const auto& [q, k, v, out, lse, dout, scale, documents, dq, dk, dv] = of;
  const FusedOperands operands{{FusedName::q, q},       {FusedName::k, k},   {FusedName::v, v},   {FusedName::out, out},
                               {FusedName::dout, dout}, {FusedName::dq, dq}, {FusedName::dk, dk}, {FusedName::dv, dv}};
  run_parts(ctx, call, documents, operands, lse, {dq, dk, dv});
}

}  // namespace fp8::ops
