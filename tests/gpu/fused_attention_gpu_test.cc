// Attention on a GPU: cuDNN's fused kernels against the crate's own plain ones on the same GPU, and both against the
// host. The plain ones are asked for with documents that all begin at position 0, which cuDNN is not given.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "../../lib/ops/src/attention_fused.h"
#include "fp8/device/arena.h"
#include "fp8/device/philox.h"
#include "fp8_test.h"

namespace fp8::ops {
namespace {

using device::Place;
using dtype::Bf16;
using dtype::DType;
using tensor::Tensor;

struct Sizes {
  std::int64_t batch, positions, heads, groups, dim;
};
constexpr Sizes kSizes[] = {
    {1, 64, 2, 2, 64}, {2, 200, 8, 2, 64}, {1, 129, 4, 1, 128}, {1, 1, 2, 2, 32}, {1, 77, 6, 3, 8}};

// One layer's tensors at one place: q, k, v in one projection, its gradient likewise.
struct Layer {
  Tensor qkv, dqkv, out, dout, lse, start;

  Layer(const Sizes& s, Place place)
      : qkv(DType::bf16, {s.batch, s.positions, s.heads + 2 * s.groups, s.dim}, place),
        dqkv(DType::bf16, {s.batch, s.positions, s.heads + 2 * s.groups, s.dim}, place),
        out(DType::bf16, {s.batch, s.positions, s.heads, s.dim}, place),
        dout(DType::bf16, {s.batch, s.positions, s.heads, s.dim}, place),
        lse(DType::f32, {s.batch, s.heads, s.positions}, place),
        start(DType::i32, {s.batch, s.positions}, place) {}

  static View heads(const Tensor& all, std::int64_t first, std::int64_t count) {
    View v = all.view();
    v.shape[2] = count;
    v.data = static_cast<std::byte*>(v.data) + 2 * first * v.shape[3];
    return v;
  }
};

struct Results {
  std::vector<float> out, lse, gradients;
};

class FusedAttentionGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::cuda_device_count() == 0) GTEST_SKIP() << device::why_no_cuda();
    gpu_ = std::make_unique<device::Device>(Place::cuda);
    memory_ = std::make_unique<device::Arena>(std::size_t{256} << 20, Place::cuda);
    host_memory_ = std::make_unique<device::Arena>(std::size_t{256} << 20, Place::host);
    ctx_ = gpu_->context(*memory_);
  }

  static Context host_context(device::Arena& arena) {
    Context ctx;
    ctx.arena = &arena;
    return ctx;
  }
  static void fill(const Tensor& t, std::uint64_t seed) {
    for (std::int64_t i = 0; i < t.view().size(); ++i) {
      const auto words = device::philox(seed, static_cast<std::uint64_t>(i), 5);
      t.as<Bf16>()[i] = dtype::to_bf16(device::normal_pair(words[0], words[1])[0]);
    }
  }
  std::vector<float> floats(const Tensor& t) const {
    const Tensor host(t.view().dtype, {t.view().size()});
    device::copy_bytes(ctx_, host.view().data, Place::host, t.view().data, t.view().place, host.view().bytes());
    std::vector<float> v;
    for (std::int64_t i = 0; i < host.view().size(); ++i)
      v.push_back(host.view().dtype == DType::f32 ? host.as<float>()[i] : to_float(host.as<Bf16>()[i]));
    return v;
  }
  // Forward and backward at the layer's place.
  Results run(const Context& ctx, const Sizes& s, const Layer& inputs, bool documents) const {
    const Layer l(s, ctx.place);
    for (const auto& [to, from] : {std::pair{&l.qkv, &inputs.qkv}, {&l.dout, &inputs.dout}})
      device::copy_bytes(ctx, to->view().data, ctx.place, from->view().data, Place::host, from->view().bytes());
    const View q = Layer::heads(l.qkv, 0, s.heads), k = Layer::heads(l.qkv, s.heads, s.groups),
               v = Layer::heads(l.qkv, s.heads + s.groups, s.groups);
    const View dq = Layer::heads(l.dqkv, 0, s.heads), dk = Layer::heads(l.dqkv, s.heads, s.groups),
               dv = Layer::heads(l.dqkv, s.heads + s.groups, s.groups);
    const Documents d{documents ? l.start.view() : View{}};
    const float scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
    attention_forward(ctx, q, k, v, scale, d, l.out.view(), l.lse.view());
    attention_backward(ctx, q, k, v, l.out.view(), l.lse.view(), l.dout.view(), scale, d, dq, dk, dv);
    return {floats(l.out), floats(l.lse), floats(l.dqkv)};
  }
  // Largest difference, against the largest magnitude.
  static double difference(const std::vector<float>& a, const std::vector<float>& b) {
    double most = 0, largest = 1e-30;
    for (std::size_t i = 0; i < a.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
      largest = std::max(largest, std::abs(static_cast<double>(b[i])));
    }
    return most / largest;
  }

  std::unique_ptr<device::Device> gpu_;
  std::unique_ptr<device::Arena> memory_, host_memory_;
  Context ctx_;
};

// Probabilities and gradients of scores are rounded to bf16 for the tensor cores, so results differ by a few units of
// bf16 (2^-8) of the largest; the log-sums are f32 throughout.
TEST_F(FusedAttentionGpu, AgreesWithThePlainKernelsAndTheHost) {
  for (const Sizes& s : kSizes) {
    const Layer inputs(s, Place::host);
    fill(inputs.qkv, 1);
    fill(inputs.dout, 2);
    const Results fused = run(ctx_, s, inputs, false), plain = run(ctx_, s, inputs, true);
    const Results host = run(host_context(*host_memory_), s, inputs, false);
    for (const Results* other : {&plain, &host}) {
      EXPECT_LE(difference(fused.out, other->out), 0x1p-6) << "T " << s.positions << " D " << s.dim;
      EXPECT_LE(difference(fused.lse, other->lse), 0x1p-16) << "T " << s.positions << " D " << s.dim;
      EXPECT_LE(difference(fused.gradients, other->gradients), 0x1p-5) << "T " << s.positions << " D " << s.dim;
    }
    const Results again = run(ctx_, s, inputs, false);
    EXPECT_EQ(fused.out, again.out) << "the same bits twice";
    EXPECT_EQ(fused.lse, again.lse);
    EXPECT_EQ(fused.gradients, again.gradients);
  }
}

// Without this the test above could pass with cuDNN asleep.
TEST_F(FusedAttentionGpu, CudnnTakesTheCall) {
  const Sizes s{2, 200, 8, 2, 64};
  const Layer l(s, Place::cuda);
  const View q = Layer::heads(l.qkv, 0, s.heads), k = Layer::heads(l.qkv, s.heads, s.groups),
             v = Layer::heads(l.qkv, s.heads + s.groups, s.groups);
  const View dq = Layer::heads(l.dqkv, 0, s.heads), dk = Layer::heads(l.dqkv, s.heads, s.groups),
             dv = Layer::heads(l.dqkv, s.heads + s.groups, s.groups);
  EXPECT_TRUE(fused_attention_forward(ctx_, q, k, v, 0.125f, {}, l.out.view(), l.lse.view()));
  EXPECT_TRUE(
      fused_attention_backward(ctx_, q, k, v, l.out.view(), l.lse.view(), l.dout.view(), 0.125f, {}, dq, dk, dv));
}

// Of more scores than one call keeps: the parts must lie side by side.
TEST_F(FusedAttentionGpu, GradientsInPartsAgreeToo) {
  memory_ = std::make_unique<device::Arena>(std::size_t{3} << 30, Place::cuda);
  ctx_ = gpu_->context(*memory_);
  for (const Sizes& s : {Sizes{2, 4200, 16, 4, 64}, Sizes{1, 6500, 16, 2, 64}}) {
    const Layer inputs(s, Place::host);
    fill(inputs.qkv, 1);
    fill(inputs.dout, 2);
    const Results fused = run(ctx_, s, inputs, false), plain = run(ctx_, s, inputs, true);
    EXPECT_LE(difference(fused.gradients, plain.gradients), 0x1p-5) << "T " << s.positions;
  }
}

TEST_F(FusedAttentionGpu, ADryRunTakesTheMemoryOfTheRun) {
  const Sizes s{2, 200, 8, 2, 64};
  const Layer inputs(s, Place::host);
  fill(inputs.qkv, 1);
  fill(inputs.dout, 2);
  device::Arena planned;
  Context dry = ctx_.with(planned);
  dry.dry = true;
  const Layer l(s, Place::cuda);
  const View q = Layer::heads(l.qkv, 0, s.heads), k = Layer::heads(l.qkv, s.heads, s.groups),
             v = Layer::heads(l.qkv, s.heads + s.groups, s.groups);
  const View dq = Layer::heads(l.dqkv, 0, s.heads), dk = Layer::heads(l.dqkv, s.heads, s.groups),
             dv = Layer::heads(l.dqkv, s.heads + s.groups, s.groups);
  attention_forward(dry, q, k, v, 0.125f, {}, l.out.view(), l.lse.view());
  attention_backward(dry, q, k, v, l.out.view(), l.lse.view(), l.dout.view(), 0.125f, {}, dq, dk, dv);
  (void)run(ctx_, s, inputs, false);
  EXPECT_EQ(planned.peak(), memory_->peak());
}

}  // namespace
}  // namespace fp8::ops
