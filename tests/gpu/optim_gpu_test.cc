// AdamW and Muon on a GPU against the host: equal bits in every type, for whole tensors and blocks, also for skipped
// steps; the sums and the gate of the whole gradient; and the iteration of Muon.
#include "../../lib/optim/tests/blocks.h"
#include "fp8/optim/muon.h"
#include "gpu.h"

namespace fp8::optim {
namespace {

// Copies of the tensors of a State on the GPU; bring() copies them back.
struct There {
  test::Gpu& gpu;
  const State& state;
  tensor::View master, gradient, m, v, compute_weight, amax;
  There(test::Gpu& g, const State& s)
      : gpu(g),
        state(s),
        master(g.put(s.master.view())),
        gradient(g.put(s.gradient.view())),
        m(g.put(s.m.view())),
        v(g.put(s.v.view())),
        compute_weight(g.put(s.compute_weight.view())),
        amax(g.put(s.amax.view())) {}
  AdamwBlock block(std::int64_t begin, std::int64_t end) const {
    AdamwBlock b = state.block(begin, end);
    b.master = master.rows(begin, end);
    b.gradient = gradient.rows(begin, end);
    b.m = m.rows(begin, end);
    b.v = v.rows(begin, end);
    b.compute_weight = compute_weight.rows(begin, end);
    b.amax = amax;
    return b;
  }
  void bring() const {
    gpu.get(master, state.master.view());
    gpu.get(m, state.m.view());
    gpu.get(v, state.v.view());
    gpu.get(compute_weight, state.compute_weight.view());
    gpu.get(amax, state.amax.view());
  }
};

TEST(AdamWGpu, UpdatesMatchTheHostBitForBit) {
  FP8_NEED_GPU();
  test::Gpu gpu;
  const Settings settings;
  for (const DType master : {DType::f32, DType::bf16})
    for (const DType moments : {DType::f32, DType::bf16})
      for (const std::int64_t n : {1, 127, 2049, 300001}) {
        State host(n, master, moments, DType::bf16), device(n, master, moments, DType::bf16);
        for (std::int64_t t = 1; t <= 3; ++t) {
          host.next_gradient(t);
          device.next_gradient(t);
          Tensor gate(DType::i32, {2});
          auto* const here = new (gate.view().data) Gate{.gradient_scale = 0.3f, .skip = t == 2 ? 1 : 0};
          adamw({}, host.whole(), settings, scalars_of(settings, t, 1e-2, 42, here));
          const There there(gpu, device);
          const Scalars scalars = scalars_of(settings, t, 1e-2, 42, static_cast<Gate*>(gpu.put(gate.view()).data));
          if (n > 1) adamw(gpu.context(), there.block(0, n / 3), settings, scalars);
          adamw(gpu.context(), there.block(n / 3, n), settings, scalars);
          there.bring();
          gpu.clear();
          ASSERT_EQ(device.bytes() == host.bytes(), true) << n << ", update " << t;
        }
      }
}

TEST(AdamWGpu, SumsAndGateMatchTheHost) {
  FP8_NEED_GPU();
  test::Gpu gpu;
  for (const std::int64_t n : {1, 32769, 1000001}) {
    const Tensor x(DType::f32, {n}), zeros(DType::f64, {2});
    for (std::int64_t i = 0; i < n; ++i) x.as<float>()[i] = 1.0f + std::sin(0.1f * static_cast<float>(i));
    const auto on_gpu = [&] {
      const tensor::View there = gpu.put(x.view()), sums = gpu.put(zeros.view());
      add_sum(gpu.context(), there, sums.as<double>());
      add_squares(gpu.context(), there, sums.as<double>() + 1);
      const Tensor gate(DType::i32, {2}), gate_back(DType::i32, {2});
      const tensor::View gate_there = gpu.put(gate.view());
      set_gate(gpu.context(), sums.as<double>(), sums.as<double>() + 1, 0.5, static_cast<Gate*>(gate_there.data));
      const Tensor back(DType::f64, {2});
      gpu.get(sums, back.view());
      gpu.get(gate_there, gate_back.view());
      Gate want;
      set_gate({}, back.as<double>(), back.as<double>() + 1, 0.5, &want);
      const Gate got = *static_cast<const Gate*>(gate_back.view().data);
      EXPECT_EQ(got.gradient_scale, want.gradient_scale);
      EXPECT_EQ(got.skip, want.skip);
      gpu.clear();
      return std::pair(back.as<double>()[0], back.as<double>()[1]);
    };
    double sum = 0, squares = 0;
    add_sum({}, x.view(), &sum);
    add_squares({}, x.view(), &squares);
    const auto got = on_gpu();
    EXPECT_NEAR(got.first, sum, 1e-12 * sum) << n;
    EXPECT_NEAR(got.second, squares, 1e-12 * squares) << n;
    EXPECT_EQ(on_gpu(), got) << "a second run must have equal bits";
  }
}

TEST(MuonGpu, UpdatesMatchTheHostBitForBit) {
  FP8_NEED_GPU();
  test::Gpu gpu;
  const Settings settings;
  for (const DType stored : {DType::f32, DType::bf16})
    for (const DType type : {DType::f32, DType::bf16})
      for (const std::int64_t n : {1, 127, 2049, 300001})
        for (const int skip : {0, 1}) {
          State host(n, stored, stored, DType::bf16), device(n, stored, stored, DType::bf16);
          const Tensor direction(type, {n}), direction_back(type, {n});
          Tensor gate(DType::i32, {2});
          auto* const here = new (gate.view().data) Gate{.gradient_scale = 0.3f, .skip = skip};
          host.next_gradient(1);
          device.next_gradient(1);
          const auto update = [&](const device::Context& ctx, const AdamwBlock& b, const tensor::View& u, Gate* open) {
            const Scalars scalars = scalars_of(settings, 1, 1e-2, 42, open);
            momentum(ctx, {b.gradient, b.m, u, b.tensor, b.first_element}, scalars);
            muon(ctx, {b.master, u, b.compute_weight, b.amax, 1, n, true, b.tensor, b.first_element}, settings,
                 scalars);
          };
          update({}, host.whole(), direction.view(), here);
          const There there(gpu, device);
          const tensor::View direction_there = gpu.put(direction.view());
          update(gpu.context(), there.block(0, n), direction_there, static_cast<Gate*>(gpu.put(gate.view()).data));
          there.bring();
          gpu.get(direction_there, direction_back.view());
          gpu.clear();
          ASSERT_EQ(device.bytes() == host.bytes(), true) << n << ", " << skip;
          ASSERT_EQ(bytes_of(direction_back) == bytes_of(direction), true) << n << ", " << skip;
        }
}

TEST(MuonGpu, IterationIsNearTheHost) {
  FP8_NEED_GPU();
  test::Gpu gpu;
  for (const auto& [type, bound] : {std::pair{DType::f32, 1e-4}, {DType::bf16, 0.05}})
    for (const auto& [rows, columns] : {std::pair{128, 320}, {320, 128}, {256, 256}}) {
      const Tensor x(type, {rows, columns}), back(type, {rows, columns});
      for (std::int64_t i = 0; i < x.view().size(); ++i) set(x, i, std::sin(0.37f * static_cast<float>(i * i % 1009)));
      const tensor::View there = gpu.put(x.view());
      gemm::Engine engine;
      orthogonalize(gpu.context(), engine, there);
      gpu.get(there, back.view());
      gpu.clear();
      device::Arena arena(std::size_t{8} << 20, device::DeviceType::host);
      device::Context ctx;
      ctx.arena = &arena;
      orthogonalize(ctx, engine, x.view());
      for (std::int64_t i = 0; i < x.view().size(); ++i)
        ASSERT_NEAR(static_cast<double>(get(back, i)), static_cast<double>(get(x, i)), bound) << i;
    }
}

}  // namespace
}  // namespace fp8::optim
