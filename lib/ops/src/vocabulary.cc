// Cross-entropy of a part of the vocabulary on the host, rows in parallel, and the checks of its arguments.
#include <cmath>

#include "cuda.h"
#include "elements.h"
#include "fp8/ops/elementwise.h"
#include "logits.h"
#include "row_kernels.h"
#include "rows.h"

namespace fp8::ops {

using device::DeviceType;

void logit_maxima(const Context& ctx, const View& logits, const View& out) {
  constexpr const char* kOp = "logit maxima";
  need_device(ctx, kOp, logits, out);
  check_logits(kOp, logits, {&out});
  need(out.size() == logits.shape[0], kOp, "expected one result for each row");
  const device::Timer timer(ctx, device::Work::cross_entropy, kOp, bytes_of(logits, out), flops_of(logits, 1));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::logit_maxima(ctx, logits, out);
  with_float_type(logits.dtype, kOp, [&]<class T>() {
    const StridedRows<T> rows(logits);
    parallel_for(rows.count(), rows.columns(),
                 [&](std::int64_t i) { out.as<float>()[i] = row_loops<T>().largest_logit(rows[i], rows.columns()); });
  });
}

void logit_sums(const Context& ctx, const View& logits, const View& targets, std::int64_t first, const View& maxima,
                const View& out) {
  constexpr const char* kOp = "logit sums";
  need_device(ctx, kOp, logits, targets, maxima, out);
  check_logits(kOp, logits, {&maxima, &out});
  check_targets(kOp, logits, targets);
  need(maxima.size() == logits.shape[0] && out.size() == 2 * logits.shape[0], kOp, "expected two sums for each row");
  const device::Timer timer(ctx, device::Work::cross_entropy, kOp, bytes_of(logits, targets, maxima, out),
                            flops_of(logits, 2));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::logit_sums(ctx, logits, targets, first, maxima, out);
  const std::int32_t* const ids = targets.as<std::int32_t>();
  with_float_type(logits.dtype, kOp, [&]<class T>() {
    const StridedRows<T> rows(logits);
    float *const sums = out.as<float>(), *const at_target = sums + rows.count();
    parallel_for(rows.count(), rows.columns() * 4, [&](std::int64_t i) {
      const std::int64_t target = ids[i] - first;
      sums[i] = static_cast<float>(row_loops<T>().sum_of_exp(rows[i], rows.columns(), maxima.as<float>()[i]));
      at_target[i] = target >= 0 && target < rows.columns() ? dtype::to_float(rows[i][target]) : 0.0f;
    });
  });
}

void cross_entropy_of_part(const Context& ctx, const PartOfLogits& part) {
  constexpr const char* kOp = "cross-entropy";
  const View &logits = part.logits, &targets = part.targets, &maxima = part.maxima, &sums = part.sums,
             &losses = part.losses;
  const float gradient_scale = part.gradient_scale;
  const bool backward = part.backward;
  need_device(ctx, kOp, logits, targets, maxima, sums, losses);
  check_logits(kOp, logits, {&maxima, &sums, &losses});
  check_targets(kOp, logits, targets);
  const std::int64_t m = logits.shape[0];
  need(maxima.size() == m && sums.size() == 2 * m && losses.size() == m, kOp, "expected one loss for each row");
  const double of_rows = bytes_of(targets, maxima, sums);
  const device::Timer timer(ctx, device::Work::cross_entropy, kOp,
                            of_rows + bytes_of(losses) + (backward ? of_rows + 2 * bytes_of(logits) : 0),
                            backward ? flops_of(logits, 2) : 0, backward ? 2 : 1);
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::cross_entropy_of_part(ctx, part);
  const std::int32_t* const ids = targets.as<std::int32_t>();
  with_float_type(logits.dtype, kOp, [&]<class T>() {
    const StridedRows<T> rows(logits);
    parallel_for(m, backward ? rows.columns() : 1, [&](std::int64_t i) {
      const PartLoss row(maxima.as<float>()[i], sums.as<float>()[i], sums.as<float>()[m + i], gradient_scale);
      const bool ignored = ids[i] == kIgnoredTarget;
      losses.as<float>()[i] = ignored ? 0.0f : row.loss();
      if (!backward) return;
      if (ignored) return std::fill_n(rows[i], rows.columns(), dtype::from_float<T>(0.0f)), void();
      row_loops<T>().logit_gradients(rows[i], rows.columns(), row.shift, row.inverse * gradient_scale);
      const std::int64_t target = ids[i] - part.first;
      if (target >= 0 && target < rows.columns()) rows[i][target] = row.gradient<T>(rows[i][target], true);
    });
  });
}

}  // namespace fp8::ops
