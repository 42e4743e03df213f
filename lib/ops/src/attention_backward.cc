// Backward of attention on the host: one task per key/value head, which walks its query heads and their blocks in
// order. So dk and dv are summed by one thread, in f32, in an order that does not depend on the threads. Scores are
// computed again from q, k and lse.
#include <omp.h>

#include "attention_common.h"
#include "attention_device.h"

namespace fp8::ops {

void attention_backward(const Context& ctx, const View& q, const View& k, const View& v, const View& out,
                        const View& lse, const View& dout, float scale, const Documents& documents, const View& dq,
                        const View& dk, const View& dv) {
  const AttentionShape shape(q, k, v, out, lse, documents);
  static_cast<void>(AttentionShape(dq, dk, dv, dout, lse, documents));
  need(dq.dtype == q.dtype && same_shape(dq, q) && same_shape(dk, k), "attention", "gradients do not fit");
  need_device(ctx, "attention", q, k, v, out, lse, dout, dq, dk, dv, documents.start);
  const device::Timer timer(ctx, device::Work::attention, "attention backward",
                            bytes_of(q, k, v, out, lse, dout) + bytes_of(dq, dk, dv),
                            kAttentionBackward * attention_flops(q));
  if (ctx.device == device::DeviceType::cuda)
    return attention_backward_on_device(ctx, q, k, v, out, lse, dout, scale, documents, dq, dk, dv);
  need(ctx.arena != nullptr, "attention", "needs an arena");
  const std::int64_t tasks = shape.batch * shape.groups;
  const int threads = device::host_threads();
  const device::Scope scope(*ctx.arena);
  const View scratch = tensor::allocate(ctx, DType::f32, {threads, backward_scratch(shape)}, "scratch");
  if (ctx.dry) return;
  const BackwardCall call{q, k, v, out, lse, dout, scale, documents, dq, dk, dv};
  const auto run = q.dtype == DType::f32 ? backward_kernels().f32 : backward_kernels().bf16;
  float* const memory = scratch.as<float>();
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::int64_t task = 0; task < tasks; ++task)
    run(shape, call, task, memory + omp_get_thread_num() * backward_scratch(shape));
}

}  // namespace fp8::ops
