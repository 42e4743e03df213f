// Adapters in the precision of the activations. Both products with the scaling are of matrices [M, R], which are small.
#include "adapter.h"

#include "fp8/ops/norm.h"

namespace fp8::linear {
namespace {

using dtype::DType;
using gemm::GemmRole;

gemm::Operand plain(const View& v) { return {v, v.dtype, {}}; }

// x with elements left out.
View dropped(const Context& ctx, const Adapter& adapter, const View& x) {
  if (adapter.dropout.probability == 0) return x;
  const View out = tensor::allocate(ctx, x.dtype, {x.shape[0], x.shape[1]}, "scratch");
  ops::dropout(ctx, x, adapter.dropout, out);
  return out;
}

// scaling times u v, [M, R].
View scaled_product(const Context& ctx, gemm::Engine& engine, const Adapter& adapter, const View& u, const View& v,
                    GemmRole role) {
  const View out = tensor::allocate(ctx, u.dtype, {u.shape[0], v.shape[1]}, "scratch");
  engine.matmul(ctx, plain(u), {v, v.dtype, adapter.scaling}, out, {.role = role});
  return out;
}

// dx += u a, of the elements of x that were not left out.
void add_input_gradient(const Context& ctx, gemm::Engine& engine, const Adapter& adapter, const View& u,
                        const View& dx) {
  if (adapter.dropout.probability == 0)
    return engine.matmul(ctx, plain(u), plain(adapter.a), dx, {.role = GemmRole::dgrad, .accumulate = true});
  const View sum = tensor::allocate(ctx, DType::f32, {dx.shape[0], dx.shape[1]}, "scratch");
  engine.matmul(ctx, plain(u), plain(adapter.a), sum, {.role = GemmRole::dgrad});
  ops::dropout(ctx, sum, adapter.dropout, sum);
  ops::add(ctx, dx, sum, dx);
}

}  // namespace

void add_adapter(const Context& ctx, gemm::Engine& engine, const Adapter& adapter, const View& x, const View& y) {
  const device::Scope scope(*ctx.arena);
  const View part = y.columns(adapter.part.begin, adapter.part.end);
  const View t =
      scaled_product(ctx, engine, adapter, dropped(ctx, adapter, x), adapter.a.transposed(), GemmRole::forward);
  if (y.dtype == DType::f32)
    return engine.matmul(ctx, plain(t), plain(adapter.b.transposed()), part,
                         {.role = GemmRole::forward, .accumulate = true});
  const View delta = tensor::allocate(ctx, y.dtype, {part.shape[0], part.shape[1]}, "scratch");
  engine.matmul(ctx, plain(t), plain(adapter.b.transposed()), delta, {.role = GemmRole::forward});
  ops::add(ctx, part, delta, part);
}

void backward_adapters(const Context& ctx, gemm::Engine& engine, const std::vector<Adapter>& adapters, const View& x,
                       const View& dy, const View& dx, const Gradients& gradients) {
  const bool accumulate = gradients.accumulate;
  std::int64_t first_a = 0, first_b = 0;
  for (const Adapter& adapter : adapters) {
    const device::Scope scope(*ctx.arena);
    const View part = dy.columns(adapter.part.begin, adapter.part.end);
    const View u = scaled_product(ctx, engine, adapter, part, adapter.b, GemmRole::dgrad);
    const std::int64_t end_a = first_a + adapter.a.shape[0], end_b = first_b + adapter.b.shape[0];
    if (!gradients.a.empty()) {
      const View in = dropped(ctx, adapter, x);
      const View t = scaled_product(ctx, engine, adapter, in, adapter.a.transposed(), GemmRole::forward);
      const gemm::MatmulOptions wgrad{.role = GemmRole::wgrad, .accumulate = accumulate};
      engine.matmul(ctx, plain(part.transposed()), plain(t), gradients.b.rows(first_b, end_b), wgrad);
      engine.matmul(ctx, plain(u.transposed()), plain(in), gradients.a.rows(first_a, end_a), wgrad);
    }
    if (!dx.empty()) add_input_gradient(ctx, engine, adapter, u, dx);
    first_a = end_a;
    first_b = end_b;
  }
}

}  // namespace fp8::linear
