// Runs a linear, attention and a collective on a device and compares them with known results.
#include "exact.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "fp8/comm/device.h"
#include "fp8/device/philox.h"
#include "fp8/linear/linear.h"
#include "fp8/ops/attention.h"
#include "on_device.h"

namespace fp8::probe {
namespace {

using device::Context;
using dtype::DType;
using tensor::Tensor;
using tensor::View;

constexpr std::int64_t kM = 48, kN = 80, kK = 112;  // multiples of 16, the alignment of FP8 GEMMs, but not of 32

// Integers from -2 to 2: sums of up to kK products of them are small enough to be exact in bf16.
std::vector<float> integers(std::int64_t n, std::uint64_t stream) {
  std::vector<float> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(device::philox(stream, i, 0)[0] % 5) - 2;
  return v;
}

struct Numbers {
  std::vector<float> x = integers(kM * kK, 1), w = integers(kN * kK, 2), dy = integers(kM * kN, 3);
};

// a [m, k] b [k, n], by strides.
struct Factor {
  const std::vector<float>& at;
  std::int64_t row, column;
};
std::vector<float> expected_product(const Factor& a, const Factor& b, std::int64_t m, std::int64_t n, std::int64_t k) {
  std::vector<float> c(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += a.at[static_cast<std::size_t>(i * a.row + l * a.column)] *
               b.at[static_cast<std::size_t>(l * b.row + j * b.column)];
      c[static_cast<std::size_t>(i * n + j)] = sum;
    }
  }
  return c;
}

// Forward and backward of the linear with these tensors.
struct LinearTensors {
  Tensor x, w, dy, y, dx, dw;
  linear::LinearPrecision precision;

  void run(const Context& ctx, gemm::Engine& engine) const {
    const device::Scope scope(*ctx.arena);
    const std::vector<linear::Part> parts{{0, kN, precision.recipe != nullptr}};
    const auto weight = [&](linear::Pass pass) { return linear::prepare(ctx, w.view(), {}, parts, precision, pass); };
    linear::forward(ctx, engine, weight(linear::Pass::forward), x.view(), y.view());
    linear::backward(ctx, engine, weight(linear::Pass::backward), x.view(), dy.view(),
                     {dx.view(), dw.view(), {}, false});
  }
};

}  // namespace

void check_values(const Context& ctx, const char* what, const View& got, const std::vector<float>& wanted) {
  const std::vector<float> values = floats_of(ctx, got);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (values[i] == wanted[i]) continue;
    const auto columns = static_cast<std::size_t>(got.shape[1]);
    throw Error(std::string(what) + "[" + std::to_string(i / columns) + ", " + std::to_string(i % columns) + "] is " +
                std::to_string(values[i]) + ", not " + std::to_string(wanted[i]));
  }
}

std::string check_products(const device::Device& device, const quant::Recipe* recipe) {
  const Numbers n;
  const Context bare = device.context();
  const auto matrix = [&](std::span<const float> values, std::int64_t rows, std::int64_t columns) {
    return placed(bare, values, DType::bf16, {rows, columns});
  };
  const auto result = [&](DType dtype, std::int64_t rows, std::int64_t columns) {
    return Tensor(dtype, {rows, columns}, device.type(), "a GEMM result");
  };
  const LinearTensors l{matrix(n.x, kM, kK),         matrix(n.w, kN, kK),         matrix(n.dy, kM, kN),
                        result(DType::bf16, kM, kN), result(DType::bf16, kM, kK), result(DType::f32, kN, kK),
                        {recipe, {true, nullptr}}};
  gemm::Engine engine;
  Workspace space(device, [&](const Context& ctx) { l.run(ctx, engine); });
  const Context ctx = space.context();
  l.run(ctx, engine);
  check_values(ctx, "y", l.y.view(), expected_product({n.x, kK, 1}, {n.w, 1, kK}, kM, kN, kK));
  check_values(ctx, "dx", l.dx.view(), expected_product({n.dy, kN, 1}, {n.w, kK, 1}, kM, kK, kN));
  check_values(ctx, "dw", l.dw.view(), expected_product({n.dy, 1, kN}, {n.x, kK, 1}, kN, kK, kM));
  const gemm::Count fp8 = engine.counts().linear(gemm::OperandKind::fp8);
  const std::int64_t wanted = recipe != nullptr ? recipe->fp8_gemms() : 0;
  if (fp8.gemms != wanted) throw Error(std::to_string(fp8.gemms) + " GEMMs ran in FP8, not " + std::to_string(wanted));
  return "y, dx and dw exact, " + std::to_string(fp8.gemms) + " of 3 GEMMs in FP8";
}

double check_attention(const device::Device& device) {
  constexpr std::int64_t kT = 80, kHeads = 4, kGroups = 2, kD = 64;
  constexpr double kMost = 0.03;  // outputs are below 3: two bf16 roundings of the largest
  const auto run = [&](const device::Device& where) {
    const Context bare = where.context();
    const auto heads = [&](std::int64_t count, std::uint64_t stream) {
      return placed(bare, integers(kT * count * kD, stream), DType::bf16, {1, kT, count, kD});
    };
    const Tensor q = heads(kHeads, 4), k = heads(kGroups, 5), v = heads(kGroups, 6);
    const Tensor out(DType::bf16, {1, kT, kHeads, kD}, where.type()), lse(DType::f32, {1, kHeads, kT}, where.type());
    const auto work = [&](const Context& ctx) {
      const device::Scope scope(*ctx.arena);
      ops::attention_forward(ctx, {q.view(), k.view(), v.view(), 0.125F, {}, out.view(), lse.view()});
    };
    Workspace space(where, work);
    const Context ctx = space.context();
    work(ctx);
    return floats_of(ctx, out.view());
  };
  const std::vector<float> got = run(device), wanted = run(device::Device());
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(got[i]) - static_cast<double>(wanted[i]));
    most = difference <= most ? most : difference;  // keeps NaN
  }
  if (!(most <= kMost)) throw Error("attention differs from the CPU by " + std::to_string(most));
  return most;
}

void check_all_reduce(const device::Device& device) {
  constexpr std::size_t kCount = 1000;
  const std::vector<float> wanted = integers(kCount, 7);
  const Context ctx = device.context();
  const Tensor values = placed(ctx, wanted, DType::f32, {static_cast<std::int64_t>(kCount)});
  const auto host = comm::solo();
  comm::on_device(*host, ctx, true)->all_reduce(std::span(values.as<float>(), kCount), comm::Reduce::sum);
  if (floats_of(ctx, values.view()) != wanted) throw Error("the sum over one rank differs from its input");
}

}  // namespace fp8::probe
