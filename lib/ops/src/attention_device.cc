// Which attention a device runs, cuDNN's or the plain one, and the memory that the plain one takes. Checks of the views
// are done.
#include "attention_device.h"

#include "attention_fused.h"
#include "cuda.h"
#include "rows.h"

namespace fp8::ops {
namespace {

constexpr std::int64_t kWidest = 256;  // elements of a head

void check_dim(const View& q) {
  need(q.shape[3] <= kWidest, "attention", "a device takes heads of at most 256 elements");
}

}  // namespace

void attention_forward_on_device(const Context& ctx, const View& q, const View& k, const View& v, float scale,
                                 const Documents& documents, const View& out, const View& lse) {
  if (fused_attention_forward(ctx, q, k, v, scale, documents, out, lse)) return;
  check_dim(q);
  if (ctx.dry) return;
  cuda::attention_forward(ctx, q, k, v, scale, documents, out, lse);
}

void attention_backward_on_device(const Context& ctx, const View& q, const View& k, const View& v, const View& out,
                                  const View& lse, const View& dout, float scale, const Documents& documents,
                                  const View& dq, const View& dk, const View& dv) {
  if (fused_attention_backward(ctx, q, k, v, out, lse, dout, scale, documents, dq, dk, dv)) return;
  check_dim(q);
  need(ctx.arena != nullptr, "attention", "needs an arena");
  const device::Scope scope(*ctx.arena);
  const auto like_k = [&] {
    return tensor::allocate(ctx, k.dtype, {k.shape[0], k.shape[1], k.shape[2], k.shape[3]}, "scratch");
  };
  const cuda::AttentionScratch scratch{
      .delta = tensor::allocate(ctx, DType::f32, {q.shape[0], q.shape[1], q.shape[2]}, "scratch"),
      .dk = like_k(),
      .dv = like_k()};
  if (ctx.dry) return;
  cuda::attention_backward(ctx, q, k, v, out, lse, dout, scale, documents, dq, dk, dv, scratch);
}

}  // namespace fp8::ops
