// Attention on a GPU: the fused kernels of cuDNN against the crate's unfused kernels and against the host. The unfused
// kernels run if the number of documents is unknown.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../../lib/ops/src/attention_fused.h"
#include "fp8/device/arena.h"
#include "fp8/device/philox.h"
#include "fp8_test.h"

namespace fp8::ops {
namespace {

using device::DeviceType;
using dtype::Bf16;
using dtype::DType;
using tensor::Tensor;

struct Sizes {
  std::int64_t batch, positions, heads, groups, dim;
};
constexpr Sizes kSizes[] = {
    {1, 64, 2, 2, 64}, {2, 200, 8, 2, 64}, {1, 129, 4, 1, 128}, {1, 1, 2, 2, 32}, {1, 77, 6, 3, 8}};

// The tensors of a layer on one device: q, k, v in one projection, and its gradient.
struct Layer {
  Tensor qkv, dqkv, out, dout, lse, start;
  std::int64_t count = 0, longest = 0;  // number of documents, length of the longest

  Layer(const Sizes& s, DeviceType device)
      : qkv(DType::bf16, {s.batch, s.positions, s.heads + 2 * s.groups, s.dim}, device),
        dqkv(DType::bf16, {s.batch, s.positions, s.heads + 2 * s.groups, s.dim}, device),
        out(DType::bf16, {s.batch, s.positions, s.heads, s.dim}, device),
        dout(DType::bf16, {s.batch, s.positions, s.heads, s.dim}, device),
        lse(DType::f32, {s.batch, s.heads, s.positions}, device),
        start(DType::i32, {s.batch, s.positions}, device) {}

  // Fills `start` on the host with documents of `length` positions and 1 position in turn; the last may be shorter.
  void pack(const Sizes& s, std::int64_t length) {
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t t = 0, next = length; t < s.positions; t += next, next = next == length ? 1 : length) {
        const std::int64_t size = std::min(next, s.positions - t);
        std::fill_n(start.as<std::int32_t>() + b * s.positions + t, size, static_cast<std::int32_t>(t));
        longest = std::max(longest, size);
        ++count;
      }
  }
};

// Views of the query, key and value heads in one projection.
std::array<View, 3> split(const Sizes& s, const Tensor& all) {
  const auto part = [&](std::int64_t first, std::int64_t count) {
    View v = all.view();
    v.shape[2] = count;
    v.data = static_cast<std::byte*>(v.data) + 2 * first * v.shape[3];
    return v;
  };
  return {part(0, s.heads), part(s.heads, s.groups), part(s.heads + s.groups, s.groups)};
}

// The properties of documents that are passed: none, their starts, for plain kernels, or also their number and the
// longest length.
enum class Passed { nothing, starts, all };

struct Results {
  std::vector<float> out, lse, gradients;
};

class FusedAttentionGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::cuda_device_count() == 0) GTEST_SKIP() << device::why_no_cuda();
    gpu_ = std::make_unique<device::Device>(DeviceType::cuda);
    memory_ = std::make_unique<device::Arena>(std::size_t{1} << 30, DeviceType::cuda);
    host_memory_ = std::make_unique<device::Arena>(std::size_t{256} << 20, DeviceType::host);
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
  static Layer filled(const Sizes& s) {
    Layer inputs(s, DeviceType::host);
    fill(inputs.qkv, 1);
    fill(inputs.dout, 2);
    return inputs;
  }
  std::vector<float> floats(const Tensor& t) const {
    const Tensor host(t.view().dtype, {t.view().size()});
    device::copy_bytes(ctx_, host.view().data, DeviceType::host, t.view().data, t.view().device, host.view().bytes());
    std::vector<float> v;
    for (std::int64_t i = 0; i < host.view().size(); ++i)
      v.push_back(host.view().dtype == DType::f32 ? host.as<float>()[i] : to_float(host.as<Bf16>()[i]));
    return v;
  }
  // Runs forward and backward on the device of `ctx`.
  Results run(const Context& ctx, const Sizes& s, const Layer& inputs, Passed passed) const {
    const Layer l(s, ctx.device);
    for (const auto& [to, from] : {std::pair{&l.qkv, &inputs.qkv}, {&l.dout, &inputs.dout}, {&l.start, &inputs.start}})
      device::copy_bytes(ctx, to->view().data, ctx.device, from->view().data, DeviceType::host, from->view().bytes());
    const auto [q, k, v] = split(s, l.qkv);
    const auto [dq, dk, dv] = split(s, l.dqkv);
    Documents d{passed == Passed::nothing ? View{} : l.start.view()};
    if (passed == Passed::all) d = {l.start.view(), inputs.count, inputs.longest};
    const float scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
    const AttentionOptions options{passed == Passed::starts ? AttentionKernels::plain : AttentionKernels::fused};
    attention_forward(ctx, {q, k, v, scale, d, l.out.view(), l.lse.view()}, options);
    attention_backward(ctx, {q, k, v, l.out.view(), l.lse.view(), l.dout.view(), scale, d, dq, dk, dv}, options);
    return {floats(l.out), floats(l.lse), floats(l.dqkv)};
  }
  // Compares cuDNN with the unfused kernels and the host, and checks that a second run has equal bits.
  void agree(const Sizes& s, const Layer& inputs, Passed passed) const {
    SCOPED_TRACE("T " + std::to_string(s.positions) + " D " + std::to_string(s.dim) + ", " +
                 std::to_string(inputs.count) + " documents of at most " + std::to_string(inputs.longest));
    const Results fused = run(ctx_, s, inputs, passed), plain = run(ctx_, s, inputs, Passed::starts);
    const Results host = run(host_context(*host_memory_), s, inputs, passed);
    for (const Results* other : {&plain, &host}) {
      EXPECT_LE(difference(fused.out, other->out), 0x1p-6);
      EXPECT_LE(difference(fused.lse, other->lse), 0x1p-16);
      EXPECT_LE(difference(fused.gradients, other->gradients), 0x1p-5);
    }
    const Results again = run(ctx_, s, inputs, passed);
    EXPECT_EQ(fused.out, again.out) << "a second run must have equal bits";
    EXPECT_EQ(fused.lse, again.lse);
    EXPECT_EQ(fused.gradients, again.gradients);
  }
  // Largest absolute difference divided by the largest magnitude; infinite for NaN.
  static double difference(const std::vector<float>& a, const std::vector<float>& b) {
    double most = 0, largest = 1e-30;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double off = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      most = std::max(most, std::isnan(off) ? HUGE_VAL : off);
      largest = std::max(largest, std::abs(static_cast<double>(b[i])));
    }
    return most / largest;
  }

  std::unique_ptr<device::Device> gpu_;
  std::unique_ptr<device::Arena> memory_, host_memory_;
  Context ctx_;
};

// Probabilities and gradients of scores are rounded to bf16 for the tensor cores, so results differ by a few units of
// bf16 (2^-8) of the largest value; the log-sums are in f32.
TEST_F(FusedAttentionGpu, MatchesTheUnfusedKernelsAndTheHost) {
  for (const Sizes& s : kSizes) {
    const Layer inputs = filled(s);
    agree(s, inputs, Passed::nothing);
  }
}

TEST_F(FusedAttentionGpu, DocumentsMatchTheUnfusedKernelsAndTheHost) {
  for (const Sizes& s : kSizes)
    for (const std::int64_t length : {1, 37, 64, 1000})
      for (const std::int64_t spare : {0, 9}) {  // exact bounds and larger bounds
        Layer inputs = filled(s);
        inputs.pack(s, length);
        inputs.count += spare;
        inputs.longest += 20 * spare;
        agree(s, inputs, Passed::all);
      }
}

// The unfused kernels use the same tiles in both cases, so their results are equal bit for bit; those of cuDNN may
// differ.
TEST_F(FusedAttentionGpu, PackedDocumentsEqualSeparateSequences) {
  const Sizes packed{1, 256, 4, 2, 64}, apart{4, 64, 4, 2, 64};
  Layer one = filled(packed);
  const Layer four = filled(apart);
  for (std::int64_t t = 0; t < 256; ++t) one.start.as<std::int32_t>()[t] = static_cast<std::int32_t>(t / 64 * 64);
  one.count = 4;
  one.longest = 64;
  const Results plain = run(ctx_, packed, one, Passed::starts), plain_apart = run(ctx_, apart, four, Passed::starts);
  EXPECT_EQ(plain.out, plain_apart.out);
  EXPECT_EQ(plain.gradients, plain_apart.gradients);
  const Results fused = run(ctx_, packed, one, Passed::all), fused_apart = run(ctx_, apart, four, Passed::nothing);
  EXPECT_LE(difference(fused.out, fused_apart.out), 0x1p-7);
  EXPECT_LE(difference(fused.gradients, fused_apart.gradients), 0x1p-6);
}

// With four documents and a bound of two, the last two are not computed; their outputs must be NaN.
TEST_F(FusedAttentionGpu, BoundsThatAreTooSmallGiveNaN) {
  const Sizes s{1, 202, 2, 2, 64};
  Layer inputs = filled(s);
  inputs.pack(s, 100);  // 100, 1, 100, 1
  ASSERT_EQ(inputs.count, 4);
  const Results right = run(ctx_, s, inputs, Passed::all);
  inputs.count = 2;
  const Results wrong = run(ctx_, s, inputs, Passed::all);
  const auto there = wrong.out.begin() + 101 * 2 * 64;
  EXPECT_LE(difference({wrong.out.begin(), there}, {right.out.begin(), right.out.begin() + 101 * 2 * 64}), 0x1p-7);
  EXPECT_TRUE(std::all_of(there, wrong.out.end(), [](float v) { return std::isnan(v); }));
}

// Sums in the order in which blocks finish differ between runs in their last bits only.
TEST_F(FusedAttentionGpu, AtomicSumsMatchOrderedOnes) {
  const Sizes s{2, 200, 8, 2, 64};
  const Layer inputs = filled(s), l(s, DeviceType::cuda);
  for (const auto& [to, from] : {std::pair{&l.qkv, &inputs.qkv}, {&l.dout, &inputs.dout}})
    device::copy_bytes(ctx_, to->view().data, ctx_.device, from->view().data, DeviceType::host, from->view().bytes());
  const auto [q, k, v] = split(s, l.qkv);
  const auto [dq, dk, dv] = split(s, l.dqkv);
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
  attention_forward(ctx_, {q, k, v, scale, {}, l.out.view(), l.lse.view()});
  attention_backward(ctx_, {q, k, v, l.out.view(), l.lse.view(), l.dout.view(), scale, {}, dq, dk, dv},
                     {.deterministic = false});
  EXPECT_LE(difference(floats(l.dqkv), run(ctx_, s, inputs, Passed::nothing).gradients), 0x1p-6);
}

// A group with more than 1 GiB of scores: ordered sums, which cuDNN has from version 9.25 on for compute capability 9.
TEST_F(FusedAttentionGpu, LongSequencesMatchTheUnfusedKernels) {
  memory_ = std::make_unique<device::Arena>(std::size_t{6} << 30, DeviceType::cuda);
  ctx_ = gpu_->context(*memory_);
  const Sizes s{1, 17000, 8, 2, 64};
  const Layer inputs = filled(s);
  const Results fused = run(ctx_, s, inputs, Passed::nothing), plain = run(ctx_, s, inputs, Passed::starts);
  EXPECT_LE(difference(fused.gradients, plain.gradients), 0x1p-5);
  EXPECT_EQ(fused.gradients, run(ctx_, s, inputs, Passed::nothing).gradients) << "deterministic";
}

// Sizes with more scores than one call stores: the gradient is computed in parts.
TEST_F(FusedAttentionGpu, GradientsInPartsMatchTheUnfusedKernels) {
  memory_ = std::make_unique<device::Arena>(std::size_t{3} << 30, DeviceType::cuda);
  ctx_ = gpu_->context(*memory_);
  for (const Sizes& s : {Sizes{2, 4200, 16, 4, 64}, Sizes{1, 6500, 16, 2, 64}}) {
    const Layer inputs = filled(s);
    const Results fused = run(ctx_, s, inputs, Passed::nothing), plain = run(ctx_, s, inputs, Passed::starts);
    EXPECT_LE(difference(fused.gradients, plain.gradients), 0x1p-5) << "T " << s.positions;
  }
  const Sizes s{1, 8300, 16, 2, 64};  // documents one at a time, heads in two parts
  Layer inputs = filled(s);
  inputs.pack(s, 6500);
  const Results fused = run(ctx_, s, inputs, Passed::all), plain = run(ctx_, s, inputs, Passed::starts);
  EXPECT_LE(difference(fused.out, plain.out), 0x1p-6);
  EXPECT_LE(difference(fused.gradients, plain.gradients), 0x1p-5);
}

TEST_F(FusedAttentionGpu, DryRunPlansTheMemoryOfTheRun) {
  const Sizes s{2, 200, 8, 2, 64};
  Layer inputs = filled(s);
  inputs.count = 5;
  inputs.longest = 200;
  const Layer l(s, DeviceType::cuda);
  const auto [q, k, v] = split(s, l.qkv);
  const auto [dq, dk, dv] = split(s, l.dqkv);
  for (const Passed passed : {Passed::nothing, Passed::all}) {  // the second allocates more
    device::Arena planned;
    Context dry = ctx_.with(planned);
    dry.dry = true;
    const Documents d = passed == Passed::all ? Documents{l.start.view(), 5, 200} : Documents{};
    attention_forward(dry, {q, k, v, 0.125f, d, l.out.view(), l.lse.view()});
    attention_backward(dry, {q, k, v, l.out.view(), l.lse.view(), l.dout.view(), 0.125f, d, dq, dk, dv});
    (void)run(ctx_, s, inputs, passed);
    EXPECT_EQ(planned.peak(), memory_->peak());
  }
}

}  // namespace
}  // namespace fp8::ops
