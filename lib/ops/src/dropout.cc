// Dropout on the host, and the checks of its arguments.
#include "fp8/ops/dropout.h"

#include "cuda.h"
#include "dropout_run.h"
#include "rows.h"

namespace fp8::ops {

void dropout(const Context& ctx, const View& x, const Dropout& drop, const View& out) {
  constexpr const char* kOp = "dropout";
  need_device(ctx, kOp, x, out);
  need(x.rank == 2 && same_shape(x, out), kOp, "shapes differ");
  need(x.dtype == out.dtype, kOp, "matrices of different types");
  need(unit_last_stride(x) && unit_last_stride(out), kOp, "rows must have unit stride");
  need(drop.probability >= 0 && drop.probability < 1, kOp, "the probability is not below 1");
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(x, out), flops_of(x, 1));
  if (ctx.dry) return;
  if (ctx.device == device::DeviceType::cuda) return cuda::dropout(ctx, x, drop, out);
  with_float_type(x.dtype, kOp, [&]<class T>() {
    const StridedRows<T> in(x), to(out);
    const std::int64_t n = in.columns();
    parallel_for(in.count(), 16 * n,
                 [&](std::int64_t i) { dropout_run(in[i], to[i], n, dropout_index(drop, i, n), drop); });
  });
}

}  // namespace fp8::ops
