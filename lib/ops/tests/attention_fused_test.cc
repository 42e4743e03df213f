// Which calls of attention cuDNN takes, and its own answer: graphs that it validates, lowers and has plans for on
// Hopper, asked without one. The last is skipped where the library cannot be loaded.
#include "attention_fused.h"

#include <gtest/gtest.h>

#include <string>

#include "fp8_test.h"

namespace fp8::ops {
namespace {

using device::DeviceType;
using dtype::DType;
using tensor::make_view;

// Views of one layer: q, k, v in a fused projection, out and gradients apart; no memory behind them.
struct Layer {
  View q, k, v, out, lse, dout, dq, dk, dv;

  Layer(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t g, std::int64_t d, DType type = DType::bf16) {
    const auto parts = [&](std::uintptr_t at, View& x, View& y, View& z) {
      const View all = make_view(reinterpret_cast<void*>(at), type, DeviceType::cuda, {b, t, h + 2 * g, d});
      const auto heads = [&](std::int64_t first, std::int64_t count) {
        View part = all;
        part.shape[2] = count;
        part.data = static_cast<std::byte*>(all.data) + first * d * static_cast<std::int64_t>(size_of(type));
        return part;
      };
      x = heads(0, h);
      y = heads(h, g);
      z = heads(h + g, g);
    };
    parts(std::uintptr_t{1} << 40, q, k, v);
    parts(std::uintptr_t{1} << 41, dq, dk, dv);
    out = make_view(reinterpret_cast<void*>(std::uintptr_t{1} << 42), type, DeviceType::cuda, {b, t, h, d});
    dout = make_view(reinterpret_cast<void*>(std::uintptr_t{1} << 43), type, DeviceType::cuda, {b, t, h, d});
    lse = make_view(reinterpret_cast<void*>(std::uintptr_t{1} << 44), DType::f32, DeviceType::cuda, {b, h, t});
  }
  std::optional<FusedAttention> forward(const Documents& documents = {}) const {
    return fused_forward_of(q, k, v, 0.125f, documents, out);
  }
  std::optional<FusedAttention> backward(const Documents& documents = {}) const {
    return fused_backward_of(q, k, v, out, dout, 0.125f, documents, dq, dk, dv);
  }
  Documents documents(std::int64_t count, std::int64_t longest) const {
    void* const at = reinterpret_cast<void*>(std::uintptr_t{1} << 45);
    return {make_view(at, DType::i32, DeviceType::cuda, {q.shape[0], q.shape[1]}), count, longest};
  }
};

TEST(FusedAttention, TakesGroupedHeadsOfAFusedProjection) {
  const Layer layer(2, 100, 8, 2, 64);
  const auto call = layer.forward();
  ASSERT_TRUE(call.has_value());
  EXPECT_EQ(call->heads, 8);
  EXPECT_EQ(call->groups, 2);
  EXPECT_EQ(call->q, (FusedAttention::Strides{100 * 12 * 64, 12 * 64, 64}));
  EXPECT_EQ(call->k, call->q);
  EXPECT_EQ(call->out, (FusedAttention::Strides{100 * 8 * 64, 8 * 64, 64}));
  EXPECT_FALSE(call->backward);
  const auto back = layer.backward();
  ASSERT_TRUE(back.has_value());
  EXPECT_TRUE(back->backward);
  EXPECT_EQ(back->dq, call->q);
  EXPECT_EQ(back->dout, call->out);
  EXPECT_NE(*call, *back);
  EXPECT_EQ(*call, *Layer(2, 100, 8, 2, 64).forward());
}

TEST(FusedAttention, LeavesTheRestToOtherKernels) {
  EXPECT_FALSE(Layer(1, 64, 4, 4, 64, DType::f32).forward());
  EXPECT_FALSE(Layer(1, 64, 4, 4, 136).forward());
  EXPECT_FALSE(Layer(1, 64, 4, 4, 12).forward());
  EXPECT_FALSE(Layer(0, 64, 4, 4, 64).forward());
  EXPECT_TRUE(Layer(1, 1, 4, 4, 128).forward());
  Layer odd(1, 64, 4, 4, 64);
  odd.k.data = static_cast<std::byte*>(odd.k.data) + 2;
  EXPECT_FALSE(odd.forward());
  Layer wide(1, 64, 4, 4, 64);
  wide.out.stride[1] += 4;
  EXPECT_FALSE(wide.forward());
  const Layer plain(1, 64, 4, 4, 64);
  EXPECT_FALSE(plain.forward(plain.documents(0, 64))) << "nobody knows how many";
  EXPECT_FALSE(plain.forward(plain.documents(3, 0))) << "nobody knows how long";
  EXPECT_TRUE(plain.forward(plain.documents(3, 64)));
  const Layer vast(1 << 16, 1 << 15, 4, 4, 64);
  EXPECT_FALSE(vast.forward(vast.documents(3, 64))) << "positions beyond 32 bits";
  EXPECT_TRUE(vast.forward());
  Layer in_place(1, 64, 4, 4, 64);
  in_place.dv = in_place.v;
  EXPECT_TRUE(in_place.forward());
  EXPECT_FALSE(in_place.backward()) << "others still read v";
}

TEST(FusedAttention, DocumentsAreSequencesOfTheirOwn) {
  const Layer layer(2, 3000, 8, 2, 64);
  const Documents documents = layer.documents(5, 1100);
  const FusedAttention call = *layer.forward(documents), back = *layer.backward(documents);
  EXPECT_TRUE(call.documents);
  EXPECT_EQ(call.batch, 5);
  EXPECT_EQ(call.positions, 1280) << "five times 256";
  EXPECT_EQ(call.q, (FusedAttention::Strides{3000 * 12 * 64, 12 * 64, 64}));
  EXPECT_EQ(call.lse, (FusedAttention::Strides{3000 * 8, 8, 1})) << "statistics of heads lie side by side";
  EXPECT_EQ(layer.forward()->lse, (FusedAttention::Strides{3000 * 8, 1, 3000}));
  using Steps = std::vector<FusedAttention::Steps>;
  const Steps both{{3000 * 12 * 64, 12 * 64}, {3000 * 8 * 64, 8 * 64}, {3000 * 8, 8}};
  EXPECT_EQ(call.steps(), both);
  EXPECT_EQ(back.steps(), both) << "gradients lie as what they are gradients of";
  FusedAttention apart = back;
  apart.dv[1] = 1024;
  EXPECT_EQ(apart.steps().size(), 4u);
  apart.backward = false;
  EXPECT_EQ(apart.steps(), both);
  const auto positions = [&](std::int64_t longest) { return layer.forward(layer.documents(1, longest))->positions; };
  EXPECT_EQ(positions(1), 128);
  EXPECT_EQ(positions(128), 128);
  EXPECT_EQ(positions(129), 256);
  EXPECT_EQ(positions(1024), 1024);
  EXPECT_EQ(positions(1025), 1280);
  EXPECT_EQ(positions(2100), 2560);
  EXPECT_EQ(positions(9999), 3072) << "no document is longer than its sequence";
  EXPECT_EQ(layer.forward(layer.documents(9999, 1))->batch, 6000) << "nor are there more than positions";
}

TEST(FusedAttention, DocumentsAreCountedInPowersOfTwoAndCutIntoRuns) {
  const auto parts = [](std::int64_t count, std::int64_t longest, bool backward) {
    const Layer layer(1, 8192, 32, 8, 64);
    const Documents documents = layer.documents(count, longest);
    const FusedAttention call = backward ? *layer.backward(documents) : *layer.forward(documents);
    const FusedParts p = parts_of(call);
    EXPECT_GE(p.each.batch * p.sequences, count) << "room for all";
    EXPECT_LT(p.each.batch * (p.sequences - 1), count) << "no part without any";
    EXPECT_EQ(p.each.groups * p.groups, 8);
    EXPECT_EQ(p.each.heads * p.groups, 32);
    EXPECT_EQ(p.each.steps(), call.steps());
    EXPECT_TRUE(p.each.score_bytes() <= kMostScores);
    return std::array{p.each.batch, p.sequences, p.groups};
  };
  using Parts = std::array<std::int64_t, 3>;
  EXPECT_EQ(parts(1, 100, false), (Parts{1, 1, 1}));
  EXPECT_EQ(parts(33, 8192, false), (Parts{64, 1, 1}));
  EXPECT_EQ(parts(33, 512, true), (Parts{64, 1, 1})) << "64 times 2^24 bytes";
  EXPECT_EQ(parts(33, 1024, true), (Parts{16, 3, 1}));
  EXPECT_EQ(parts(3, 4096, true), (Parts{1, 3, 1}));
  EXPECT_EQ(parts(3, 8192, true), (Parts{1, 3, 4})) << "a document's heads apart";
}

TEST(FusedAttention, GradientsThatKeepTooManyScoresAreMadeInParts) {
  const auto parts = [](std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t g) {
    const FusedAttention call = *Layer(b, t, h, g, 64).backward();
    const FusedParts p = parts_of(call);
    EXPECT_EQ(p.each.batch * p.sequences, call.batch);
    EXPECT_EQ(p.each.groups * p.groups, call.groups);
    EXPECT_EQ(p.each.heads * p.groups, call.heads);
    EXPECT_EQ(p.each.q, call.q) << "where they lie";
    EXPECT_EQ(p.each.lse, (FusedAttention::Strides{p.each.heads * t, 1, t})) << "no gaps";
    EXPECT_TRUE(p.each.score_bytes() <= kMostScores || (p.each.batch == 1 && p.each.groups == 1));
    return std::pair(p.sequences, p.groups);
  };
  using Parts = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(parts(4, 2048, 32, 8), (Parts{1, 1})) << "2^30 bytes";
  EXPECT_EQ(parts(4, 2049, 32, 8), (Parts{2, 1}));
  EXPECT_EQ(parts(3, 4096, 32, 8), (Parts{3, 1}));
  EXPECT_EQ(parts(6, 2048, 32, 8), (Parts{2, 1}));
  EXPECT_EQ(parts(2, 8192, 32, 8), (Parts{2, 4}));
  EXPECT_EQ(parts(1, 8192, 12, 3), (Parts{1, 3})) << "two of three would fit, and are no equal parts";
  EXPECT_EQ(parts(1, 65536, 16, 2), (Parts{1, 2})) << "no smaller part";
  EXPECT_EQ(Layer(4, 65536, 16, 16, 64).forward()->score_bytes(), 0);
}

// What cuDNN says of an H100 with 80 GB, by the names that it reads.
constexpr const char* kHopper =
    R"({"deviceName":"NVIDIA H100 80GB HBM3","cudaDeviceId":0,"deviceVer":900,"driverVer":13000,"isTccDriver":0,
"l2CacheSize":52428800,"maxBlockSize":[1024,1024,64],"maxCtasPerSM":32,"maxGridSize":[2147483647,65535,65535],
"maxRegistersPerSM":65536,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,
"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"memClockRateKHz":2619000,"multiProcessorCount":132,"pciDeviceId":0,
"regsPerBlock":65536,"reservedSharedMemoryPerBlock":1024,"smClockRateKHz":1980000,"supportCoopLaunch":1,
"totalGlobalMem":85000000000,"warpSize":32})";

// Without a driver cuDNN proposes engines and then lacks the means to compile their kernels: all else must be right. An
// engine that refuses the graph says so before it asks for the driver.
void expect_plans(const FusedAttention& call) {
  if (::testing::Test::IsSkipped()) return;  // already known
  const std::string answer = test::error_of([&] { EXPECT_GT(fused_plans_for(call, 90, kHopper), 0); });
  if (answer.find("cannot be loaded") != std::string::npos || answer.find("no CUDA") != std::string::npos)
    GTEST_SKIP() << answer;
  const bool only_the_driver_is_missing = answer.find("\"smVersion\":900") != std::string::npos &&
                                          answer.find("this->libcuda == nullptr") != std::string::npos;
  EXPECT_TRUE(answer == "no error" || only_the_driver_is_missing) << answer;
}

TEST(FusedAttention, CudnnHasPlansForHopper) {
  for (const Layer& layer : {Layer(2, 200, 8, 2, 64), Layer(1, 129, 4, 1, 128), Layer(4, 2048, 12, 12, 64)})
    for (const auto& call : {layer.forward(), layer.backward()}) expect_plans(*call);
  if (::testing::Test::IsSkipped()) return;
  FusedAttention odd = *Layer(1, 64, 4, 4, 64).forward();
  odd.dim = 12;
  EXPECT_NE(test::error_of([&] { (void)fused_plans_for(odd, 90, kHopper); }).find("multiple of 8"), std::string::npos);
}

TEST(FusedAttention, CudnnHasPlansForDocumentsOnHopper) {
  for (const Layer& layer : {Layer(2, 200, 8, 2, 64), Layer(1, 8192, 32, 8, 128)}) {
    for (const Documents& documents : {layer.documents(1, 1), layer.documents(7, 150), layer.documents(9, 9999)})
      for (const auto& call : {layer.forward(documents), layer.backward(documents)}) expect_plans(parts_of(*call).each);
  }
  Layer apart(2, 200, 8, 2, 64);  // a table of offsets for every tensor but lse
  const auto stretch = [](View& v, std::int64_t by) {
    v.stride[1] += by * 64;
    v.stride[0] = v.shape[1] * v.stride[1];
  };
  stretch(apart.k, 1);
  stretch(apart.v, 2);
  stretch(apart.dout, 1);
  stretch(apart.dq, 4);
  stretch(apart.dk, 5);
  stretch(apart.dv, 6);
  const FusedAttention call = *apart.backward(apart.documents(7, 150));
  EXPECT_EQ(call.steps().size(), 9u);
  expect_plans(call);
}

}  // namespace
}  // namespace fp8::ops
