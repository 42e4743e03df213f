// Forward attention on the host: one task per head and block of queries. Every task works in its thread's part of the
// scratch memory; its result does not depend on the threads.
#include <omp.h>

#include "attention_common.h"
#include "attention_device.h"

namespace fp8::ops {

void attention_forward(const Context& ctx, const View& q, const View& k, const View& v, float scale,
                       const Documents& documents, const View& out, const View& lse) {
  const AttentionShape shape(q, k, v, out, lse, documents);
  need_device(ctx, "attention", q, k, v, out, lse, documents.start);
  const device::Timer timer(ctx, device::Work::attention, "attention", bytes_of(q, k, v, out, lse), attention_flops(q));
  if (ctx.device == device::DeviceType::cuda)
    return attention_forward_on_device(ctx, q, k, v, scale, documents, out, lse);
  need(ctx.arena != nullptr, "attention", "needs an arena");
  const std::int64_t tasks = shape.batch * shape.heads * shape.blocks;
  const int threads = device::host_threads();
  const device::Scope scope(*ctx.arena);
  const View scratch = tensor::allocate(ctx, DType::f32, {threads, forward_scratch(shape)}, "scratch");
  if (ctx.dry) return;
  const ForwardCall call{q, k, v, scale, documents, out, lse};
  const auto run = q.dtype == DType::f32 ? forward_kernels().f32 : forward_kernels().bf16;
  float* const memory = scratch.as<float>();
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::int64_t task = 0; task < tasks; ++task)
    run(shape, call, task, memory + omp_get_thread_num() * forward_scratch(shape));
}

}  // namespace fp8::ops
