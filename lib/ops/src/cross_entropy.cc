// Cross-entropy of a block of logits on the host, with its gradient in place, rows in parallel.
#include <string>

#include "cuda.h"
#include "fp8/ops/elementwise.h"
#include "logits.h"
#include "row_kernels.h"
#include "rows.h"

namespace fp8::ops {
void cross_entropy(const Context& ctx, const View& logits, const View& targets, const View& losses,
                   float gradient_scale, bool backward) {
  constexpr const char* kOp = "cross-entropy";
  need_device(ctx, kOp, logits, targets, losses);
  check_logits(kOp, logits, {&losses});
  check_targets(kOp, logits, targets);
  const std::int64_t m = logits.shape[0], vocabulary = logits.shape[1];
  need(losses.size() == m, kOp, "expected one loss for each row");
  const device::Timer timer(ctx, device::Work::cross_entropy, kOp,
                            (backward ? 2 : 1) * bytes_of(logits) + bytes_of(targets, losses),
                            flops_of(logits, backward ? 5 : 3));
  if (ctx.dry) return;
  if (ctx.device == device::DeviceType::cuda)
    return cuda::cross_entropy(ctx, logits, targets, losses, gradient_scale, backward);
  const std::int32_t* ids = targets.as<std::int32_t>();
  for (std::int64_t i = 0; i < m; ++i) {
    if ((ids[i] < 0 || ids[i] >= vocabulary) && ids[i] != kIgnoredTarget) {
      throw Error(std::string(kOp) + ": target " + std::to_string(ids[i]) + " is not below " +
                  std::to_string(vocabulary));
    }
  }
  float* out = losses.as<float>();
  with_float_type(logits.dtype, kOp, [&]<class T>() {
    const StridedRows<T> rows(logits);
    const RowLoops<T>& loops = row_loops<T>();
    parallel_for(m, vocabulary * 4, [&](std::int64_t i) {
      out[i] = loops.cross_entropy(rows[i], vocabulary, ids[i], gradient_scale, backward);
    });
  });
}

}  // namespace fp8::ops
