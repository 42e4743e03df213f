// RMSNorm forward and backward on the host, alone or fused with the residual addition, rows in parallel; each row is
// read twice while it is in the cache. The gradient of the weight is summed by blocks of rows, which do not depend on
// the number of threads.
#include "fp8/ops/norm.h"

#include <algorithm>
#include <optional>

#include "cuda.h"
#include "row_amax.h"
#include "rows.h"

namespace fp8::ops {
namespace {

using device::DeviceType;

void check_rows(const char* op, const View& like, const View& v) {
  need(same_shape(like, v), op, "shapes differ");
  need(v.dtype == like.dtype, op, "activations of different types");
  need(unit_last_stride(v), op, "rows must have unit stride");
}

void check_norm(const char* op, const View& x, const View& weight, const View& rstd) {
  need(x.rank == 2 || x.rank == 3, op, "activations must have 2 or 3 dimensions");
  check_rows(op, x, x);
  need(weight.rank == 1 && weight.shape[0] == x.shape[static_cast<std::size_t>(x.rank - 1)] && weight.contiguous(), op,
       "the weight does not match the activations");
  need(weight.dtype == x.dtype, op, "the weight must have the type of the activations");
  bool fits = rstd.rank == x.rank - 1 && rstd.dtype == DType::f32;
  for (int d = 0; d < x.rank - 1; ++d) {
    fits = fits && rstd.shape[static_cast<std::size_t>(d)] == x.shape[static_cast<std::size_t>(d)];
  }
  need(fits, op, "rstd must be float32, one for each row");
}

// The result of a norm, which may be missing on a device.
void check_result(const Context& ctx, const char* op, const View& x, const View& y) {
  if (ctx.device != DeviceType::cuda || y.rank != 0) check_rows(op, x, y);
}

template <class T>
void backward_blocks(const NormGradient& norm, float* partial) {
  const StridedRows<T> dy_rows(norm.dy), x_rows(norm.x), up_rows(norm.upstream), dx_rows(norm.dx);
  const StridedRows<float> r_rows(with_unit_column(norm.rstd));
  const T* w = norm.weight.as<T>();
  const RowLoops<T>& loops = row_loops<T>();
  const std::int64_t n = x_rows.columns();
  const RowBlocks blocks(x_rows.count());
  parallel_for(blocks.count, blocks.each * n, [&](std::int64_t b) {
    float* dweight = partial == nullptr ? nullptr : partial + b * n;
    if (dweight != nullptr) std::fill(dweight, dweight + n, 0.0f);
    for (std::int64_t i = blocks.begin(b); i < blocks.end(b); ++i) {
      const T* up = up_rows.empty() ? nullptr : up_rows[i];
      loops.norm_gradient({dy_rows[i], x_rows[i], w, up, dx_rows[i], dweight, *r_rows[i]}, n);
      record_row(norm.amax, 0, dx_rows[i], n);
    }
  });
}

}  // namespace

void rmsnorm_forward(const Context& ctx, const View& x, const View& weight, float eps, const View& y, const View& rstd,
                     const Amax& amax) {
  constexpr const char* kOp = "rmsnorm";
  need_device(ctx, kOp, x, weight, y, rstd);
  check_norm(kOp, x, weight, rstd);
  check_result(ctx, kOp, x, y);
  check_amax(ctx, kOp, amax, 1);
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(x, weight, y, rstd), flops_of(x, 4));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::norm_forward(ctx, kOp, {x, {}, weight, eps, x, y, rstd, amax});
  with_float_type(x.dtype, kOp, [&]<class T>() {
    const StridedRows<T> in(x), out(y);
    const StridedRows<float> r(with_unit_column(rstd));
    const T* w = weight.as<T>();
    const std::int64_t n = in.columns();
    const RowLoops<T>& loops = row_loops<T>();
    parallel_for(in.count(), n, [&](std::int64_t i) {
      *r[i] = loops.norm(in[i], w, eps, out[i], n);
      record_row(amax, 0, out[i], n);
    });
  });
}

void add_rmsnorm_forward(const Context& ctx, const AddNorm& norm) {
  constexpr const char* kOp = "add_rmsnorm";
  const auto& [x, delta, weight, eps, sum, y, rstd, amax] = norm;
  need_device(ctx, kOp, x, delta, weight, sum, y, rstd);
  check_norm(kOp, x, weight, rstd);
  check_rows(kOp, x, delta);
  check_rows(kOp, x, sum);
  check_result(ctx, kOp, x, y);
  check_amax(ctx, kOp, amax, 1);
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(x, delta, weight, sum, y, rstd),
                            flops_of(x, 5));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::norm_forward(ctx, kOp, norm);
  with_float_type(x.dtype, kOp, [&]<class T>() {
    const StridedRows<T> a_rows(x), b_rows(delta), s_rows(sum), out(y);
    const StridedRows<float> r(with_unit_column(rstd));
    const T* w = weight.as<T>();
    const std::int64_t n = a_rows.columns();
    const RowLoops<T>& loops = row_loops<T>();
    parallel_for(a_rows.count(), n, [&](std::int64_t i) {
      loops.add(a_rows[i], b_rows[i], s_rows[i], n);
      *r[i] = loops.norm(s_rows[i], w, eps, out[i], n);
      record_row(amax, 0, out[i], n);
    });
  });
}

void rmsnorm_backward(const Context& ctx, const NormGradient& norm) {
  constexpr const char* kOp = "rmsnorm backward";
  const auto& [dy, x, weight, rstd, upstream, dx, dweight, amax] = norm;
  need_device(ctx, kOp, dy, x, weight, rstd, upstream, dx, dweight);
  check_norm(kOp, x, weight, rstd);
  check_rows(kOp, x, dy);
  check_rows(kOp, x, dx);
  check_amax(ctx, kOp, amax, 1);
  const std::int64_t n = weight.shape[0];
  if (upstream.rank != 0) check_rows(kOp, x, upstream);
  const bool weighted = dweight.rank != 0;
  if (weighted) {
    need(dweight.dtype == DType::f32 && dweight.rank == 1 && dweight.shape[0] == n && dweight.contiguous(), kOp,
         "dweight must be float32 and fit the weight");
  }
  if (n == 0 || x.size() == 0) return;
  const std::int64_t rows = x.size() / n;
  const std::int64_t blocks = ctx.device == DeviceType::cuda ? cuda::norm_blocks(rows, n) : RowBlocks(rows).count;
  std::optional<device::Scope> scope;
  if (weighted) {
    need(ctx.arena != nullptr, kOp, "needs an arena");
    scope.emplace(*ctx.arena);
  }
  const View partial = weighted ? tensor::allocate(ctx, DType::f32, {blocks, n}, "scratch") : View{};
  const device::Timer timer(ctx, device::Work::elementwise, kOp,
                            bytes_of(dy, x, weight, rstd, upstream, dx) + 2 * bytes_of(partial, dweight),
                            flops_of(x, 10), weighted ? 2 : 1);
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::norm_backward(ctx, norm, partial);
  with_float_type(x.dtype, kOp, [&]<class T>() { backward_blocks<T>(norm, weighted ? partial.as<float>() : nullptr); });
  if (weighted) add_partial_sums(partial.as<float>(), blocks, n, dweight.as<float>());
}

}  // namespace fp8::ops
