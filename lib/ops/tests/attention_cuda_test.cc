// The kernels of attention on the host, thread by thread, compared with the host's attention.
#include "attention_cases.h"
#include "attention_fused.h"
#include "cuda.h"
#include "far_rows.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"
#include "long.h"
#include "shim_device.h"
#include "shim_launches.h"

namespace fp8::ops {
namespace {

struct ShimAttention : ShimMemory {
  void attention_forward(const AttentionForward& call) { cuda::attention_forward(context, call); }
  void attention_backward(const AttentionBackward& call) {
    const View &q = call.q, &k = call.k;
    const auto like_k = [&] { return scratch(k.dtype, {k.shape[0], k.shape[1], k.shape[2], k.shape[3]}); };
    const cuda::AttentionScratch memory{scratch(DType::f32, {q.shape[0], q.shape[1], q.shape[2]}), like_k(), like_k()};
    cuda::attention_backward(context, call, memory);
  }
};

TEST(AttentionCuda, ForwardAndBackwardEqualTheHosts) {
  ShimAttention device;
  cases::attention(device, test::long_run(static_cast<int>(std::size(cases::kAttentionSizes))));
}

TEST(AttentionCuda, DocumentsOfOneTileAreSeparate) {  // NaN in one document does not affect others
  ShimAttention device;
  const cases::AttentionSize size{1, 130, 1, 1, 16};
  const cases::Projection x(DType::f32, size, true, 1), poisoned(DType::f32, size, true, 1);
  const Tensor starts = cases::starts_of(size);
  for (std::int64_t t = 64; t < 128; ++t) poisoned.k.as<float>()[t * x.k.stride[1]] = std::nanf("");
  for (std::int64_t t = 64; t < 128; ++t) poisoned.v.as<float>()[t * x.v.stride[1]] = std::nanf("");
  const Tensor out(DType::f32, {1, 130, 1, 16}), lse(DType::f32, {1, 1, 130});
  const View clean = device.put(out.view()), dirty = device.put(out.view()), sums = device.put(lse.view());
  const Documents documents{device.put(starts.view())};
  device.attention_forward({device.put(x.q), device.put(x.k), device.put(x.v), 0.25f, documents, clean, sums});
  device.attention_forward(
      {device.put(poisoned.q), device.put(poisoned.k), device.put(poisoned.v), 0.25f, documents, dirty, sums});
  const Values a = read(clean), b = read(dirty);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool inside = i / 16 >= 64 && i / 16 < 128;
    EXPECT_EQ(std::isnan(b[i]), inside) << i;
    if (!inside) {
      EXPECT_EQ(a[i], b[i]);
    }
  }
}

// Documents of one tile each: tiles are aligned with documents, so even the bits are equal.
TEST(AttentionCuda, PackedDocumentsEqualSeparateSequences) {
  ShimAttention device;
  const cases::AttentionSize packed{1, 128, 2, 1, 16}, apart{2, 64, 2, 1, 16};
  Values starts(128, 0.0);
  std::fill(starts.begin() + 64, starts.end(), 64.0);
  const View start = device.put(make(DType::i32, {1, 128}, starts).view());
  const auto run = [&](const cases::AttentionSize& s, const Documents& documents) {
    const cases::Projection x(DType::bf16, s, true, 1), grads(DType::bf16, s, true, 2);
    const tensor::Shape shape{s.batch, s.positions, s.heads, s.dim};
    const View q = device.put(x.q), k = device.put(x.k), v = device.put(x.v), dq = device.put(grads.q),
               dk = device.put(grads.k), dv = device.put(grads.v), out = device.scratch(DType::bf16, shape),
               lse = device.scratch(DType::f32, {s.batch, s.heads, s.positions}),
               dout = device.put(make(DType::bf16, shape, random_values(128 * 2 * 16, 3)).view());
    device.attention_forward({q, k, v, 0.25f, documents, out, lse});
    device.attention_backward({q, k, v, out, lse, dout, 0.25f, documents, dq, dk, dv});
    return std::vector{read(out), read(dq), read(dk), read(dv)};
  };
  EXPECT_EQ(run(packed, {start}), run(apart, {}));
}

// Sequences, positions and heads whose offsets need more than 32 bits, in groups of eight elements and in single ones.
TEST(AttentionCuda, RowsFarApartEqualTheHosts) {
  constexpr std::int64_t m = 5;
  const Host host;
  for (const auto& [type, n] : {std::pair{DType::bf16, std::int64_t{16}}, {DType::f32, 12}})
    for (std::size_t of = 0; of < 3; ++of) {  // sequences, positions or heads
      ShimAttention device;
      const std::int64_t sequences = of == 0 ? m : 1, positions = of == 1 ? m : 1, heads = of == 2 ? m : 1;
      std::vector<Tensor> near;  // q, k, v, gradient of the result, result, gradients of q, k and v
      std::vector<std::unique_ptr<test::FarRows>> far;
      std::vector<View> on_host, apart;
      for (unsigned i = 0; i < 8; ++i) {
        near.push_back(make(type, {m, n}, random_values(m * n, i + 1)));
        far.push_back(std::make_unique<test::FarRows>(type, m, n));
        if (i < 4) far.back()->put(near.back().view());
        on_host.push_back(near.back().view().reshaped({sequences, positions, heads, n}));
        apart.push_back(on_host.back());
        apart.back().data = far.back()->view.data;
        apart.back().stride[of] = far.back()->view.stride[0];
      }
      const Tensor lse(DType::f32, {sequences, heads, positions}), got(type, {m, n});
      const View sums = device.put(lse.view());
      const auto run = [](auto&& forward, auto&& backward, const std::vector<View>& x, const View& statistics) {
        forward(AttentionForward{x[0], x[1], x[2], 0.25f, {}, x[4], statistics});
        backward(AttentionBackward{x[0], x[1], x[2], x[4], statistics, x[3], 0.25f, {}, x[5], x[6], x[7]});
      };
      run([&](const auto& call) { attention_forward(host, call); },
          [&](const auto& call) { attention_backward(host, call); }, on_host, lse.view());
      run([&](const auto& call) { device.attention_forward(call); },
          [&](const auto& call) { device.attention_backward(call); }, apart, sums);
      cases::expect_same(device, sums, lse.view(), 1e-5, "statistics");
      for (std::size_t i = 4; i < 8; ++i) {
        far[i]->get(got.view());
        cases::expect_same(device, got.view(), near[i].view(), type == DType::f32 ? 1e-5 : 0x1p-6,
                           "tensor " + std::to_string(i));
      }
    }
}

// Grids of many sequences and heads, which have more blocks than CUDA allows along y.
TEST(AttentionCuda, GridsOfManyHeads) {
  float value = 0;
  const shim::Launches launches(shim::Blocks::none);
  const Context context{.device = device::DeviceType::cuda};
  const auto view = [&](tensor::Shape shape) {
    return tensor::make_view(&value, DType::f32, device::DeviceType::host, shape);
  };
  const View q = view({64, 8192, 32, 64}), lse = view({64, 32, 8192});
  cuda::attention_forward(context, {q, q, q, 1, {}, q, lse});
  cuda::attention_backward(context, {q, q, q, q, lse, q, 1, {}, q, q, q}, {view({64, 8192, 32}), q, q});
  EXPECT_GT(launches.grids().at(0).x, 65535u);
  EXPECT_GE(launches.grids().size(), 4u);
}

// Views without memory and a dry context on a device, as for planning.
struct Planned {
  device::Arena arena;
  Context context{.device = device::DeviceType::cuda, .arena = &arena, .dry = true};
  View view(DType type, tensor::Shape shape) const { return tensor::allocate(context, type, shape, "tensors"); }
};

TEST(DryDevice, AttentionAllocatesItsScratch) {
  const Planned plan;
  const View q = plan.view(DType::f32, {2, 128, 4, 32}), k = plan.view(DType::f32, {2, 128, 2, 32}),
             lse = plan.view(DType::f32, {2, 4, 128});
  const std::size_t before = plan.arena.mark();
  const AttentionOptions plain{.kernels = AttentionKernels::plain};
  attention_forward(plan.context, {q, k, k, 1, {}, q, lse}, plain);
  EXPECT_EQ(plan.arena.peak(), before);
  attention_backward(plan.context, {q, k, k, q, lse, q, 1, {}, q, k, k}, plain);
  EXPECT_EQ(plan.arena.peak(), before + 2 * k.bytes() + lse.bytes());
  EXPECT_EQ(plan.arena.mark(), before);
  const View wide = plan.view(DType::f32, {1, 1, 1, 257}), one = plan.view(DType::f32, {1, 1, 1});
  EXPECT_EQ(error_of([&] {
              attention_forward(plan.context, {wide, wide, wide, 1, {}, wide, one}, plain);
            }),
            "attention: heads on a device must have at most 256 elements");
  EXPECT_EQ(error_of([&] {
              attention_forward(plan.context, {q, k, k, 1, {}, q, lse});
            }),
            "attention: cuDNN: needs bf16 activations")
      << "plain kernels run only if they are asked for";
  EXPECT_EQ(error_of([&] {
              attention_backward(plan.context, {q, k, k, q, lse, q, 1, {}, q, k, k});
            }),
            "attention: cuDNN: needs bf16 activations");
}

TEST(DryDevice, AttentionOfDocumentsAllocatesItsTables) {
  const Planned plan;
  const View q = plan.view(DType::bf16, {2, 100, 4, 32}), k = plan.view(DType::bf16, {2, 100, 2, 32}),
             lse = plan.view(DType::f32, {2, 4, 100}), gq = plan.view(DType::bf16, {2, 100, 4, 32}),
             gk = plan.view(DType::bf16, {2, 100, 2, 32}), gv = plan.view(DType::bf16, {2, 100, 2, 32});
  const Documents documents{plan.view(DType::i32, {2, 100}), 5, 60};
  const std::size_t before = plan.arena.mark();
  const auto expected = [&](std::int64_t workspace) {  // for eight documents of three tensors' steps: q, k, lse
    const device::Scope scope(*plan.context.arena);
    (void)plan.view(DType::i32, {1, 8});
    (void)plan.view(DType::i64, {3, 1, 10});
    (void)plan.view(DType::f32, {2, 100, 4});
    (void)plan.view(DType::u8, {workspace});
    return plan.arena.mark();
  };
  attention_forward(plan.context, {q, k, k, 1, documents, q, lse});
  EXPECT_EQ(plan.arena.peak(), expected(0));
  attention_backward(plan.context, {q, k, k, q, lse, q, 1, documents, gq, gk, gv});
  EXPECT_EQ(plan.arena.peak(), expected(2 * 8 * 4 * 128 * 128 + 8 * 4 * 128 * (4 * 32 + 8)));
  Planned atomic;
  const std::size_t tables = atomic.arena.peak();
  attention_backward(atomic.context, {q, k, k, q, lse, q, 1, {}, gq, gk, gv}, {.deterministic = false});
  EXPECT_EQ(atomic.arena.peak(), tables + 2 * 4 * 100 * (8 * 32 + 8));
  EXPECT_EQ(plan.arena.mark(), before);
}

TEST(DryDevice, SumsOverRowsAllocateTheirScratch) {
  const Planned plan;
  const View x = plan.view(DType::bf16, {1000, 64}), w = plan.view(DType::bf16, {64}), f = plan.view(DType::f32, {64}),
             rstd = plan.view(DType::f32, {1000}), ids = plan.view(DType::i32, {1000}),
             table = plan.view(DType::f32, {50, 64});
  const std::size_t before = plan.arena.mark(), partial = static_cast<std::size_t>(cuda::column_blocks(1000, 64)) * 256;
  bias_backward(plan.context, x, f);
  EXPECT_EQ(plan.arena.peak(), before + partial);
  rmsnorm_backward(plan.context, {x, x, w, rstd, {}, x, f});
  EXPECT_EQ(plan.arena.peak(), before + partial);
  embedding_backward(plan.context, ids, x, table);
  EXPECT_EQ(plan.arena.peak(), before + std::max<std::size_t>(partial, 12032));
}

}  // namespace
}  // namespace fp8::ops
