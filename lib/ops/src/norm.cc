// RMSNorm forward and backward on the host, alone or fused with the residual addition. Rows in parallel; each row is
// read twice while it is in the cache. The gradient of the weight is summed by blocks of rows that do not depend on the
// number of threads.
#include "fp8/ops/norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "cuda.h"
#include "norm_element.h"
#include "rows.h"

namespace fp8::ops {
namespace {

using device::Place;
using dtype::from_float;
using dtype::to_float;

void check_rows(const char* op, const View& like, const View& v) {
  need(same_shape(like, v), op, "shapes differ");
  need(v.dtype == like.dtype, op, "activations of different types");
  need(unit_last_stride(v), op, "elements of a row must lie next to each other");
}

void check_norm(const char* op, const View& x, const View& weight, const View& rstd) {
  need(x.rank == 2 || x.rank == 3, op, "activations must have 2 or 3 dimensions");
  check_rows(op, x, x);
  need(weight.rank == 1 && weight.shape[0] == x.shape[static_cast<std::size_t>(x.rank - 1)] && weight.contiguous(), op,
       "the weight does not fit");
  need(weight.dtype == x.dtype, op, "the weight must have the activations' type");
  bool fits = rstd.rank == x.rank - 1 && rstd.dtype == DType::f32;
  for (int d = 0; d < x.rank - 1; ++d) {
    fits = fits && rstd.shape[static_cast<std::size_t>(d)] == x.shape[static_cast<std::size_t>(d)];
  }
  need(fits, op, "rstd must be float32, one for each row");
}

// Sum of squares in PyTorch's order: four vectors of eight side by side, every 16 rounds folded into a sum of
// sums, and again every 256; then vectors left over, the tail, the lanes one by one. A code on a rounding tie then
// falls as it does there, and the error grows with the logarithm of n. Source: the cascade sum of ATen's SumKernel.cpp.
template <class T>
float square_sum(const T* x, std::int64_t n) {
  constexpr int kVector = 8, kSide = 4 * kVector;
  constexpr std::int64_t kFold = 16;
  std::array<float, kSide> sum{}, folded{}, twice{};
  const auto fold = [](std::array<float, kSide>& from, std::array<float, kSide>& to) {
    for (std::size_t j = 0; j < kSide; ++j) to[j] += from[j];
    from.fill(0);
  };
  const auto square = [x](std::int64_t i) { return to_float(x[i]) * to_float(x[i]); };
  const std::int64_t rounds = n / kSide, vectors = n / kVector;
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma omp simd
    for (int j = 0; j < kSide; ++j) sum[static_cast<std::size_t>(j)] += square(r * kSide + j);
    if ((r + 1) % kFold == 0) fold(sum, folded);
    if ((r + 1) % (kFold * kFold) == 0) fold(folded, twice);
  }
  fold(folded, sum);
  fold(twice, sum);
  for (std::int64_t v = rounds * 4; v < vectors; ++v) {
#pragma omp simd
    for (int j = 0; j < kVector; ++j) sum[static_cast<std::size_t>(j)] += square(v * kVector + j);
  }
  float total = 0;
  for (std::int64_t i = vectors * kVector; i < n; ++i) total += square(i);
  for (std::size_t j = 0; j < kVector; ++j) total += ((sum[j] + sum[j + 8]) + sum[j + 16]) + sum[j + 24];
  return total;
}

// 1 / sqrt(mean(x^2) + eps).
template <class T>
float inverse_rms(const T* x, std::int64_t n, float eps) {
  return 1.0f / std::sqrt(square_sum(x, n) / static_cast<float>(n) + eps);
}

template <class T>
void normalize(const T* x, const T* weight, float rstd, std::int64_t n, T* y) {
#pragma omp simd
  for (std::int64_t c = 0; c < n; ++c) y[c] = norm_output(x[c], rstd, weight[c]);
}

// What the backward of one row needs; dx may be dy or upstream.
template <class T>
struct RowGradient {
  const T* dy;
  const T* x;
  const T* weight;
  const T* upstream;  // null: none
  T* dx;
  float rstd;
  std::int64_t n;

  // With a null `dweight` the gradient of the weight is not wanted.
  void run(float* dweight) const {
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t c = 0; c < n; ++c) dot += norm_dot(dy[c], x[c], weight[c], rstd);
    const float mean = dot / static_cast<float>(n);
    if (dweight != nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) dweight[c] += to_float(dy[c]) * normalized(x[c], rstd);
    }
    if (upstream != nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) dx[c] = from_float<T>(gradient(c, mean) + to_float(upstream[c]));
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) dx[c] = from_float<T>(gradient(c, mean));
    }
  }
  float gradient(std::int64_t c, float mean) const { return norm_gradient(dy[c], x[c], weight[c], rstd, mean); }
};

template <class T>
void backward_blocks(const View& dy, const View& x, const View& weight, const View& rstd, const View& upstream,
                     const View& dx, float* partial) {
  const Rows<T> dy_rows(dy), x_rows(x), up_rows(upstream), dx_rows(dx);
  const Rows<float> r_rows(with_unit_column(rstd));
  const T* w = weight.as<T>();
  const std::int64_t n = x_rows.columns();
  const RowBlocks blocks(x_rows.count());
  parallel_for(blocks.count, blocks.each * n, [&](std::int64_t b) {
    float* dweight = partial == nullptr ? nullptr : partial + b * n;
    if (dweight != nullptr) std::fill(dweight, dweight + n, 0.0f);
    for (std::int64_t i = blocks.begin(b); i < blocks.end(b); ++i) {
      const T* up = up_rows.empty() ? nullptr : up_rows[i];
      RowGradient<T>{dy_rows[i], x_rows[i], w, up, dx_rows[i], *r_rows[i], n}.run(dweight);
    }
  });
}

}  // namespace

void rmsnorm_forward(const Context& ctx, const View& x, const View& weight, float eps, const View& y,
                     const View& rstd) {
  constexpr const char* kOp = "rmsnorm";
  need_place(ctx, kOp, x, weight, y, rstd);
  check_norm(kOp, x, weight, rstd);
  check_rows(kOp, x, y);
  if (ctx.dry) return;
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(x, y), flops_of(x, 4));
  if (ctx.place == Place::cuda) return cuda::norm_forward(ctx, kOp, x, {}, weight, eps, x, y, rstd);
  with_activation_type(x.dtype, kOp, [&]<class T>(T) {
    const Rows<T> in(x), out(y);
    const Rows<float> r(with_unit_column(rstd));
    const T* w = weight.as<T>();
    const std::int64_t n = in.columns();
    parallel_for(in.count(), n, [&](std::int64_t i) {
      const float inverse = inverse_rms(in[i], n, eps);
      *r[i] = inverse;
      normalize(in[i], w, inverse, n, out[i]);
    });
  });
}

void add_rmsnorm_forward(const Context& ctx, const View& x, const View& delta, const View& weight, float eps,
                         const View& sum, const View& y, const View& rstd) {
  constexpr const char* kOp = "add_rmsnorm";
  need_place(ctx, kOp, x, delta, weight, sum, y, rstd);
  check_norm(kOp, x, weight, rstd);
  check_rows(kOp, x, delta);
  check_rows(kOp, x, sum);
  check_rows(kOp, x, y);
  if (ctx.dry) return;
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(x, delta, sum, y), flops_of(x, 5));
  if (ctx.place == Place::cuda) return cuda::norm_forward(ctx, kOp, x, delta, weight, eps, sum, y, rstd);
  with_activation_type(x.dtype, kOp, [&]<class T>(T) {
    const Rows<T> a_rows(x), b_rows(delta), s_rows(sum), out(y);
    const Rows<float> r(with_unit_column(rstd));
    const T* w = weight.as<T>();
    const std::int64_t n = a_rows.columns();
    parallel_for(a_rows.count(), n, [&](std::int64_t i) {
      const T *a = a_rows[i], *b = b_rows[i];
      T* s = s_rows[i];
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) s[c] = from_float<T>(to_float(a[c]) + to_float(b[c]));
      const float inverse = inverse_rms(s, n, eps);
      *r[i] = inverse;
      normalize(s, w, inverse, n, out[i]);
    });
  });
}

void rmsnorm_backward(const Context& ctx, const View& dy, const View& x, const View& weight, const View& rstd,
                      const View& upstream, const View& dx, const View& dweight) {
  constexpr const char* kOp = "rmsnorm backward";
  need_place(ctx, kOp, dy, x, weight, rstd, upstream, dx, dweight);
  check_norm(kOp, x, weight, rstd);
  check_rows(kOp, x, dy);
  check_rows(kOp, x, dx);
  const std::int64_t n = weight.shape[0];
  if (upstream.rank != 0) check_rows(kOp, x, upstream);
  const bool weighted = dweight.rank != 0;
  if (weighted) {
    need(dweight.dtype == DType::f32 && dweight.rank == 1 && dweight.shape[0] == n && dweight.contiguous(), kOp,
         "dweight must be float32 and fit the weight");
  }
  if (n == 0 || x.size() == 0) return;
  const std::int64_t rows = x.size() / n;
  const std::int64_t blocks = ctx.place == Place::cuda ? cuda::column_blocks(rows, n) : RowBlocks(rows).count;
  std::optional<device::Scope> scope;
  if (weighted) {
    need(ctx.arena != nullptr, kOp, "needs an arena");
    scope.emplace(*ctx.arena);
  }
  const View partial = weighted ? tensor::take(ctx, DType::f32, {blocks, n}, "scratch") : View{};
  if (ctx.dry) return;
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(dy, x, upstream, dx), flops_of(x, 10));
  if (ctx.place == Place::cuda) return cuda::norm_backward(ctx, dy, x, weight, rstd, upstream, dx, dweight, partial);
  with_activation_type(x.dtype, kOp, [&]<class T>(T) {
    backward_blocks<T>(dy, x, weight, rstd, upstream, dx, weighted ? partial.as<float>() : nullptr);
  });
  if (weighted) add_partial_sums(partial.as<float>(), blocks, n, dweight.as<float>());
}

}  // namespace fp8::ops
