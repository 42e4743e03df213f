// Attention: checks of the views, then one task per block on the host, or cuDNN or the kernels of attention.cuh on a
// device. On the host every task works in its thread's scratch memory, so results do not depend on the threads.
#include <omp.h>

#include <limits>

#include "attention_common.h"
#include "attention_fused.h"
#include "cuda.h"

namespace fp8::ops {
namespace {

constexpr const char* kOp = "attention";

void check_heads(const View& q, const View& v, std::int64_t heads) {
  need(v.rank == 4 && v.shape[0] == q.shape[0] && v.shape[1] == q.shape[1] && v.shape[2] == heads &&
           v.shape[3] == q.shape[3],
       kOp, "shapes do not match");
  need(v.dtype == q.dtype, kOp, "activations of different types");
  need(unit_last_stride(v), kOp, "heads must have unit stride");
}

constexpr std::int64_t kWidestHead = 256;  // elements; on a device

void check_head(const View& q) {
  need(q.shape[3] <= kWidestHead, kOp, "heads on a device must have at most 256 elements");
}

// Empty calls need no library.
bool fused(const View& q, const AttentionOptions& options) {
  return options.kernels == AttentionKernels::fused && q.size() > 0;
}

// What a profile records of attention. In a planned profile cuDNN's launches and workspace are those of `options`.
device::Span span_of(const Context& ctx, const View& q, const View& k, const Documents& documents, bool backward,
                     double bytes, const AttentionOptions& options) {
  const bool device = ctx.device == device::DeviceType::cuda && fused(q, options);
  const FusedCost cost = device && device::planned(ctx)
                             ? fused_cost(ctx, q, k.shape[2], documents, backward && options.deterministic, backward)
                             : FusedCost{};
  const int plain = backward ? 5 : 1;  // delta; dk and dv; dq; copies of dk and dv
  return {.work = device::Work::attention,
          .name = backward ? "attention backward" : "attention",
          .bytes = bytes + cost.bytes,
          .flops = (backward ? kAttentionBackward : 1) * attention_flops(q, documents),
          .mnk = {q.shape[0] * q.shape[2], q.shape[1], q.shape[3]},
          .launches = cost.launches > 0 ? cost.launches : plain};
}

// cuDNN or the kernels of attention.cuh.
void forward_on_device(const Context& ctx, const AttentionForward& call, const AttentionOptions& options) {
  if (fused(call.q, options)) return fused_attention_forward(ctx, call);
  check_head(call.q);
  if (ctx.dry) return;
  cuda::attention_forward(ctx, call);
}

void backward_on_device(const Context& ctx, const AttentionBackward& call, const AttentionOptions& options) {
  const View &q = call.q, &k = call.k;
  if (fused(q, options)) return fused_attention_backward(ctx, call, options.deterministic);
  check_head(q);
  need(ctx.arena != nullptr, kOp, "needs an arena");
  const device::Scope scope(*ctx.arena);
  const auto like_k = [&] {
    return tensor::allocate(ctx, k.dtype, {k.shape[0], k.shape[1], k.shape[2], k.shape[3]}, "scratch");
  };
  const cuda::AttentionScratch scratch{
      .delta = tensor::allocate(ctx, DType::f32, {q.shape[0], q.shape[1], q.shape[2]}, "scratch"),
      .dk = like_k(),
      .dv = like_k()};
  if (ctx.dry) return;
  cuda::attention_backward(ctx, call, scratch);
}

}  // namespace

double attention_flops(const View& q, const Documents& documents) {
  const auto positions = static_cast<double>(q.shape[1]);
  const double pairs = documents.pairs > 0 ? static_cast<double>(documents.pairs)
                                           : static_cast<double>(q.shape[0]) * positions * (positions + 1) / 2;
  return 4.0 * static_cast<double>(q.shape[2] * q.shape[3]) * pairs;
}

AttentionShape::AttentionShape(const View& q, const View& k, const View& v, const View& out, const View& lse,
                               const Documents& documents) {
  need(q.rank == 4 && k.rank == 4, kOp, "q, k and v must have 4 dimensions");
  need(q.dtype == DType::f32 || q.dtype == DType::bf16, kOp, "activations must be float32 or bfloat16");
  batch = q.shape[0];
  positions = q.shape[1];
  heads = q.shape[2];
  groups = k.shape[2];
  dim = q.shape[3];
  need(groups > 0 && heads % groups == 0, kOp, "query heads must be a multiple of key heads");
  need(dim > 0 && positions < std::numeric_limits<std::int32_t>::max() - kBlock, kOp, "unsupported extents");
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
  padded = round_up(dim, kPadding);
  blocks = divide_up(positions, kBlock);
}

// One task per head and block of queries.
void attention_forward(const Context& ctx, const AttentionForward& call, const AttentionOptions& options) {
  const auto& [q, k, v, scale, documents, out, lse] = call;
  const AttentionShape shape(q, k, v, out, lse, documents);
  need_device(ctx, kOp, q, k, v, out, lse, documents.start);
  const device::Timer timer(ctx, span_of(ctx, q, k, documents, false, bytes_of(q, k, v, out, lse), options));
  if (ctx.device == device::DeviceType::cuda) return forward_on_device(ctx, call, options);
  need(ctx.arena != nullptr, kOp, "needs an arena");
  const std::int64_t tasks = shape.batch * shape.heads * shape.blocks;
  const int threads = device::host_threads();
  const device::Scope scope(*ctx.arena);
  const View scratch = tensor::allocate(ctx, DType::f32, {threads, forward_scratch(shape)}, "scratch");
  if (ctx.dry) return;
  const auto run = q.dtype == DType::f32 ? forward_kernels().f32 : forward_kernels().bf16;
  float* const memory = scratch.as<float>();
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::int64_t task = 0; task < tasks; ++task)
    run(shape, call, task, memory + omp_get_thread_num() * forward_scratch(shape));
}

// One task per key/value head, which processes its query heads and their blocks in order: dk and dv are summed in f32
// by one thread in a fixed order. Scores are recomputed from q, k and lse.
void attention_backward(const Context& ctx, const AttentionBackward& call, const AttentionOptions& options) {
  const auto& [q, k, v, out, lse, dout, scale, documents, dq, dk, dv] = call;
  const AttentionShape shape(q, k, v, out, lse, documents);
  static_cast<void>(AttentionShape(dq, dk, dv, dout, lse, documents));
  need(dq.dtype == q.dtype && same_shape(dq, q) && same_shape(dk, k), kOp, "gradients do not match");
  need_device(ctx, kOp, q, k, v, out, lse, dout, dq, dk, dv, documents.start);
  // dk and dv, and dq: two kernels that read all; before them the dot products of out and dout.
  const double read = bytes_of(q, k, v, dout) + 2 * bytes_of(lse), dots = bytes_of(out, dout, lse);
  const device::Timer timer(
      ctx, span_of(ctx, q, k, documents, true, dots + 2 * read + bytes_of(dq) + 3 * bytes_of(dk, dv), options));
  if (ctx.device == device::DeviceType::cuda) return backward_on_device(ctx, call, options);
  need(ctx.arena != nullptr, kOp, "needs an arena");
  const std::int64_t tasks = shape.batch * shape.groups;
  const int threads = device::host_threads();
  const device::Scope scope(*ctx.arena);
  const View scratch = tensor::allocate(ctx, DType::f32, {threads, backward_scratch(shape)}, "scratch");
  if (ctx.dry) return;
  const auto run = q.dtype == DType::f32 ? backward_kernels().f32 : backward_kernels().bf16;
  float* const memory = scratch.as<float>();
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::int64_t task = 0; task < tasks; ++task)
    run(shape, call, task, memory + omp_get_thread_num() * backward_scratch(shape));
}

}  // namespace fp8::ops
