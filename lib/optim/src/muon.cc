// Muon on the host: momentum and step in chunks of a fixed size, whose elements are independent; and the iteration, on
// any device, of GEMMs and element-wise operations.
#include "fp8/optim/muon.h"

#include <algorithm>
#include <bit>
#include <string>

#include "cuda.h"
#include "fp8/base/error.h"
#include "fp8/device/profile.h"
#include "fp8/gemm/row_stride.h"
#include "fp8/ops/norm.h"
#include "muon_kernels.h"
#include "type_index.h"

namespace fp8::optim {
namespace {

using dtype::DType;

void check(const Context& ctx, const View& view, std::int64_t size, const char* what) {
  if (view.size() != size) throw Error(std::string("Muon: ") + what + " differs from the block in size");
  if (!view.contiguous()) throw Error(std::string("Muon: ") + what + " is not contiguous");
  if (view.device != ctx.device) throw Error(std::string("Muon: ") + what + " is not on the context's device");
}

// body(begin, end) for chunks of n elements, on all threads.
template <class Body>
void each_chunk(std::int64_t n, Body&& body) {
#pragma omp parallel for schedule(static) num_threads(device::host_threads()) if (n > kChunk)
  for (std::int64_t begin = 0; begin < n; begin += kChunk) body(begin, std::min(begin + kChunk, n));
}

std::uint32_t step(const MuonBlock& b, bool copies, const MuonUpdate& u) {
  const std::size_t compute_weight =
      copies ? type_index(b.compute_weight.dtype, "Muon: compute weight") : kNoComputeWeight;
  const auto kernel = muon_kernels().step[type_index(b.master.dtype, "Muon: master")]
                                         [type_index(b.direction.dtype, "Muon: direction")][compute_weight];
  const std::int64_t n = b.master.size();
  std::uint32_t amax = 0;
#pragma omp parallel for schedule(static) num_threads(device::host_threads()) reduction(max : amax) if (n > kChunk)
  for (std::int64_t begin = 0; begin < n; begin += kChunk)
    amax = std::max(amax, kernel(u, begin, std::min(begin + kChunk, n)));
  return amax;
}

// x /= max(norm, 1e-7), where `square_sum`, on x's device, has the square of the norm.
void divide(const Context& ctx, const View& x, const double* square_sum) {
  const device::Timer timer(ctx, device::Work::optimizer, "Muon: norm", 2 * tensor::bytes_of(x),
                            static_cast<double>(x.size()));
  if (ctx.dry) return;
  if (ctx.device == device::DeviceType::cuda) return cuda::divide(ctx, x, square_sum);
  const auto kernel = muon_kernels().divide[type_index(x.dtype, "Muon: matrix")];
  const float divisor = divisor_of(*square_sum);
  each_chunk(x.size(), [&](std::int64_t begin, std::int64_t end) { kernel(x.data, divisor, begin, end); });
}

// out = a x + b sums, rounded once; out may be x.
void combine(const Context& ctx, const Combination& c) {
  const device::Timer timer(ctx, device::Work::optimizer, "Muon: combine", tensor::bytes_of(c.x, c.sums, c.out),
                            3 * static_cast<double>(c.x.size()));
  if (ctx.dry) return;
  if (ctx.device == device::DeviceType::cuda) return cuda::combine(ctx, c);
  const auto kernel = muon_kernels().combine[type_index(c.x.dtype, "Muon: matrix")];
  each_chunk(c.x.size(), [&](std::int64_t begin, std::int64_t end) {
    kernel(c.x.data, c.a, c.sums.as<float>(), c.b, c.out.data, begin, end);
  });
}

// The squared norm of x, f64 [1] on its device.
View square_sum_of(const Context& ctx, const View& x, const View& sums) {
  const View total = tensor::allocate(ctx, DType::f64, {1}, "orthogonalization");
  ops::zero(ctx, total);
  if (x.dtype != DType::f32) ops::copy(ctx, x, sums);
  add_squares(ctx, x.dtype == DType::f32 ? x : sums, ctx.dry ? nullptr : total.as<double>());
  return total;
}

View scratch(const Context& ctx, DType type, std::int64_t rows, std::int64_t columns) {
  return tensor::allocate(ctx, type, {rows, columns}, "orthogonalization");
}

// The GEMMs of an iteration.
class Products {
 public:
  Products(const Context& ctx, gemm::Engine& engine, DType type)
      : ctx_(ctx),
        engine_(engine),
        copies_(ctx.device == device::DeviceType::host && (type == DType::f32 || !gemm::native_host_bf16())) {}

  // Memory for operand() of `values`.
  View room(const View& values) const {
    if (!copies_) return {};
    const std::int64_t columns = values.shape[1];
    return scratch(ctx_, DType::f32, values.shape[0], gemm::row_stride(columns)).columns(0, columns);
  }

  // The values as GEMMs read them: on a host that multiplies in f32 a copy, which several GEMMs share. Each would
  // otherwise upcast its operands.
  View operand(const View& values, const View& room) const {
    if (!copies_) return values;
    ops::copy(ctx_, values, room);
    return room;
  }

  // c = a b
  void multiply(const View& a, const View& b, const View& c) const {
    engine_.matmul(ctx_, {a, a.dtype, {}}, {b, b.dtype, {}}, c, {});
  }

  // c = a a^T: panels of rows up to the diagonal, and their transposes. On a GPU all of it, since kernels of parts take
  // longer.
  void symmetric(const View& a, const View& c) const {
    const std::int64_t side = c.shape[0], panel = ctx_.device == device::DeviceType::host ? kPanel : side;
    for (std::int64_t begin = 0; begin < side; begin += panel) {
      const std::int64_t end = std::min(begin + panel, side);
      const View rows = c.rows(begin, end);
      multiply(a.rows(begin, end), a.rows(0, end).transposed(), rows.columns(0, end));
      if (begin > 0) ops::copy(ctx_, rows.columns(0, begin).transposed(), c.rows(0, begin).columns(begin, end));
    }
  }

 private:
  static constexpr std::int64_t kPanel = 128;
  const Context& ctx_;
  gemm::Engine& engine_;
  bool copies_;
};

}  // namespace

void momentum(const Context& ctx, const MomentumBlock& block, const Scalars& scalars) {
  const std::int64_t n = block.gradient.size();
  for (const auto& [view, what] :
       {std::pair{&block.gradient, "gradient"}, {&block.momentum, "momentum"}, {&block.direction, "direction"}})
    check(ctx, *view, n, what);
  if (n == 0) return;
  const device::Timer timer(ctx, device::Work::optimizer, "Muon: momentum",
                            2 * tensor::bytes_of(block.momentum) + tensor::bytes_of(block.gradient, block.direction),
                            7 * static_cast<double>(n));
  if (ctx.dry) return;
  if (ctx.device == device::DeviceType::cuda) return cuda::momentum(ctx, block, scalars);
  const auto kernel = muon_kernels().momentum[type_index(block.momentum.dtype, "Muon: momentum")]
                                             [type_index(block.direction.dtype, "Muon: direction")];
  const MomentumUpdate u{block.gradient.as<float>(),
                         block.momentum.data,
                         block.direction.data,
                         *scalars.gate,
                         {scalars.seed, scalars.update, block.tensor, block.first_element}};
  each_chunk(n, [&](std::int64_t begin, std::int64_t end) { kernel(u, begin, end); });
}

double orthogonalization_flops(std::int64_t rows, std::int64_t columns) {
  const auto m = static_cast<double>(std::min(rows, columns)), n = static_cast<double>(std::max(rows, columns));
  return kIterations * (4 * m * m * n + 2 * m * m * m);
}

void orthogonalize(const Context& ctx, gemm::Engine& engine, const View& x) {
  if (x.rank != 2 || !x.contiguous()) throw Error("Muon: needs a contiguous matrix");
  if (x.size() == 0) return;
  const device::Scope scope(*ctx.arena);
  const std::int64_t rows = x.shape[0], columns = x.shape[1], side = std::min(rows, columns);
  const bool tall = rows > columns;
  const Products products(ctx, engine, x.dtype);
  const View gram = scratch(ctx, x.dtype, side, side), polynomial = scratch(ctx, x.dtype, side, side);
  const View product = scratch(ctx, DType::f32, rows, columns);
  const View square = product.reshaped({x.size()}).rows(0, side * side).reshaped({side, side});
  const View of_gram = products.room(gram), of_x = products.room(x);
  divide(ctx, x, square_sum_of(ctx, x, product).as<double>());
  for (int i = 0; i < kIterations; ++i) {
    const View values = products.operand(x, of_x);
    products.symmetric(tall ? values.transposed() : values, gram);
    products.symmetric(products.operand(gram, of_gram), square);
    combine(ctx, {gram, kB, square, kC, polynomial});
    const View factor = products.operand(polynomial, of_gram);
    tall ? products.multiply(values, factor.transposed(), product) : products.multiply(factor, values, product);
    combine(ctx, {x, kA, product, 1, x});
  }
}

void add_squared_change(const Context& ctx, const View& before, const View& after, double* total) {
  const device::Scope scope(*ctx.arena);
  View now = after;
  if (after.dtype != DType::f32) {
    now = tensor::allocate(ctx, DType::f32, {after.size()}, "squared change");
    ops::copy(ctx, after, now);
  }
  combine(ctx, {before, -1, now, 1, before});
  add_squares(ctx, before, total);
}

void muon(const Context& ctx, const MuonBlock& block, const Settings& settings, const Scalars& scalars) {
  const std::int64_t n = block.master.size();
  check(ctx, block.master, n, "master");
  check(ctx, block.direction, n, "direction");
  if (!block.compute_weight.empty()) check(ctx, block.compute_weight, n, "compute weight");
  if (!block.amax.empty() && block.amax.size() != 1) throw Error("Muon: amax must be a scalar");
  if (n == 0) return;
  const bool same = block.compute_weight.data == block.master.data && block.compute_weight.dtype == block.master.dtype;
  const bool copies = !block.compute_weight.empty() && !same;
  const device::Timer timer(ctx, device::Work::optimizer, "Muon: step",
                            2 * tensor::bytes_of(block.master) + tensor::bytes_of(block.direction) +
                                (copies ? tensor::bytes_of(block.compute_weight) : 0.0),
                            3 * static_cast<double>(n));
  if (ctx.dry) return;
  if (ctx.device == device::DeviceType::cuda) {
    MuonBlock there = block;
    if (!copies) there.compute_weight = {};
    return cuda::muon(ctx, there, settings, scalars);
  }
  const std::uint32_t amax = step(block, copies,
                                  {block.master.data,
                                   block.direction.data,
                                   copies ? block.compute_weight.data : nullptr,
                                   muon_coefficients(settings, scalars, block),
                                   *scalars.gate,
                                   {scalars.seed, scalars.update, block.tensor, block.first_element}});
  if (!block.amax.empty()) {
    float* largest = block.amax.as<float>();
    *largest = std::bit_cast<float>(std::max(amax, std::bit_cast<std::uint32_t>(*largest) & kMagnitude));
  }
}

}  // namespace fp8::optim
