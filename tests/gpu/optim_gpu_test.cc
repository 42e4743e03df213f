// AdamW on a GPU against the host: equal bits in every type, for whole tensors and blocks, also for skipped steps; and
// the sums and the gate of the whole gradient.
#include "../../lib/optim/tests/blocks.h"
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

}  // namespace
}  // namespace fp8::optim
