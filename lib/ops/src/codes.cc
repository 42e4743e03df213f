// Checks of the operations that write codes.
#include "fp8/ops/codes.h"

#include "cuda.h"
#include "logits.h"
#include "row_amax.h"
#include "rows.h"

namespace fp8::ops {
namespace {

void check(const Context& ctx, const char* op, std::initializer_list<const View*> views) {
  need(ctx.device == device::DeviceType::cuda, op, "codes are written on a GPU only");
  for (const View* v : views) {
    need_device(ctx, op, *v);
    need(v->rank == 2 && unit_last_stride(*v), op, "rows must have unit stride");
    need(v->dtype == DType::bf16, op, "activations must be bf16");
  }
}

void check_codes(const char* op, const quant::ProducedCodes& to, std::int64_t rows, std::int64_t columns) {
  for (const quant::Quantized* q : {&to.codes.last, &to.codes.first})
    need(q->codes.empty() || (q->codes.shape[0] == rows && q->codes.shape[1] == columns), op,
         "codes have another shape");
}

void check_rows(const Context& ctx, const char* op, const View& logits, const View& targets, const LossRows& rows) {
  need_device(ctx, op, targets, rows.largest, rows.inverse);
  check_logits(op, logits, {&rows.largest, &rows.inverse});
  check_targets(op, logits, targets);
  need(rows.largest.size() == logits.shape[0] && rows.inverse.size() == logits.shape[0], op,
       "expected one result for each row");
}

void check_codes(const char* op, const quant::ProducedGroups& to, std::int64_t rows, std::int64_t columns) {
  need(to.cast.x.shape[0] == rows && to.cast.x.shape[1] == columns, op, "codes of groups have another shape");
}

template <class Produced>
void write_swiglu(const Context& ctx, const View& gate_up, const Produced& to) {
  constexpr const char* kOp = "swiglu codes";
  check(ctx, kOp, {&gate_up});
  check_codes(kOp, to, gate_up.shape[0], gate_up.shape[1] / 2);
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(gate_up) + quant::bytes_of_produced(to),
                            flops_of(gate_up, 3));
  if (!ctx.dry && gate_up.size() > 0) cuda::swiglu_codes(ctx, gate_up, to);
}

template <class Produced>
void write_swiglu_gradients(const Context& ctx, const View& dh, const View& gate_up,
                            const std::array<Produced, 2>& to) {
  constexpr const char* kOp = "swiglu backward codes";
  check(ctx, kOp, {&dh, &gate_up});
  need(gate_up.shape[0] == dh.shape[0] && gate_up.shape[1] == 2 * dh.shape[1], kOp,
       "gate_up must be twice as wide as the gradient");
  for (const Produced& half : to) check_codes(kOp, half, dh.shape[0], dh.shape[1]);
  const device::Timer timer(ctx, device::Work::elementwise, kOp,
                            bytes_of(dh, gate_up) + quant::bytes_of_produced(to[0]) + quant::bytes_of_produced(to[1]),
                            flops_of(dh, 16));
  if (!ctx.dry && dh.size() > 0) cuda::swiglu_backward_codes(ctx, dh, gate_up, to);
}

}  // namespace

void rmsnorm_codes(const Context& ctx, const View& x, const View& weight, const View& rstd,
                   const quant::ProducedCodes& to) {
  constexpr const char* kOp = "rmsnorm codes";
  check(ctx, kOp, {&x});
  check_codes(kOp, to, x.shape[0], x.shape[1]);
  need(weight.dtype == x.dtype && weight.size() == x.shape[1] && weight.contiguous(), kOp,
       "the weight does not match the activations");
  need(rstd.dtype == DType::f32 && rstd.size() == x.shape[0] && rstd.contiguous(), kOp, "rstd is not one for each row");
  const device::Timer timer(ctx, device::Work::cast, kOp, bytes_of(x, weight, rstd) + quant::bytes_of_produced(to),
                            flops_of(x, 4));
  if (!ctx.dry) cuda::rmsnorm_codes(ctx, x, weight, rstd, to);
}

void swiglu_codes(const Context& ctx, const View& gate_up, const quant::ProducedCodes& to) {
  write_swiglu(ctx, gate_up, to);
}

void swiglu_codes(const Context& ctx, const View& gate_up, const quant::ProducedGroups& to) {
  write_swiglu(ctx, gate_up, to);
}

void swiglu_backward_codes(const Context& ctx, const View& dh, const View& gate_up,
                           const std::array<quant::ProducedCodes, 2>& to) {
  write_swiglu_gradients(ctx, dh, gate_up, to);
}

void swiglu_backward_codes(const Context& ctx, const View& dh, const View& gate_up,
                           const std::array<quant::ProducedGroups, 2>& to) {
  write_swiglu_gradients(ctx, dh, gate_up, to);
}

void cross_entropy_rows(const Context& ctx, const View& logits, const View& targets, const View& losses,
                        float gradient_scale, const LossRows& rows) {
  constexpr const char* kOp = "cross-entropy rows";
  check(ctx, kOp, {&logits});
  check_rows(ctx, kOp, logits, targets, rows);
  need_device(ctx, kOp, losses);
  check_logits(kOp, logits, {&losses});
  need(losses.size() == logits.shape[0], kOp, "expected one loss for each row");
  check_amax(ctx, kOp, rows.amax, 1);
  const device::Timer timer(ctx, device::Work::cross_entropy, kOp,
                            bytes_of(logits, targets, losses, rows.largest, rows.inverse),
                            flops_of(logits, rows.amax.value.empty() ? 3 : 5));
  if (!ctx.dry) cuda::cross_entropy_rows(ctx, logits, targets, losses, gradient_scale, rows);
}

void cross_entropy_codes(const Context& ctx, const View& logits, const View& targets, float gradient_scale,
                         const LossRows& rows, const quant::ProducedCodes& to) {
  constexpr const char* kOp = "cross-entropy codes";
  check(ctx, kOp, {&logits});
  check_rows(ctx, kOp, logits, targets, rows);
  check_codes(kOp, to, logits.shape[0], logits.shape[1]);
  const device::Timer timer(ctx, device::Work::cross_entropy, kOp,
                            bytes_of(logits, targets, rows.largest, rows.inverse) + quant::bytes_of_produced(to),
                            flops_of(logits, 2));
  if (!ctx.dry) cuda::cross_entropy_codes(ctx, logits, targets, gradient_scale, rows, to);
}

}  // namespace fp8::ops
