// Calls of attention that cuDNN supports, and their division into parts. Graphs are tested in
// tests/cudnn/graphs_test.cc.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "fp8/base/error.h"
#include "fp8_test.h"
#include "fused_layer.h"

namespace fp8::ops {
namespace {

using test::error_of;

TEST(FusedAttention, SupportsGroupedHeadsOfAFusedProjection) {
  const Layer layer(2, 100, 8, 2, 64);
  const FusedAttention call = layer.forward();
  EXPECT_EQ(call.heads, 8);
  EXPECT_EQ(call.groups, 2);
  EXPECT_EQ(call.q, (FusedAttention::Strides{100 * 12 * 64, 12 * 64, 64}));
  EXPECT_EQ(call.k, call.q);
  EXPECT_EQ(call.out, (FusedAttention::Strides{100 * 8 * 64, 8 * 64, 64}));
  EXPECT_FALSE(call.backward);
  const FusedAttention back = layer.backward();
  EXPECT_TRUE(back.backward);
  EXPECT_EQ(back.dq, call.q);
  EXPECT_EQ(back.dout, call.out);
  EXPECT_NE(call, back);
  EXPECT_EQ(call, Layer(2, 100, 8, 2, 64).forward());
}

TEST(FusedAttention, UnsupportedCallsAreRefusedWithTheReason) {
  const auto forward = [](const Layer& layer, const Documents& documents = {}) {
    return error_of([&] { (void)layer.forward(documents); });
  };
  EXPECT_EQ(forward(Layer(1, 64, 4, 4, 64, DType::f32)), "attention: cuDNN: needs bf16 activations");
  const std::string heads = "attention: cuDNN: needs heads of 8, 16, ... 128 elements, not ";
  EXPECT_EQ(forward(Layer(1, 64, 4, 4, 136)), heads + "136");
  EXPECT_EQ(forward(Layer(1, 64, 4, 4, 12)), heads + "12");
  EXPECT_EQ(forward(Layer(1, 1, 4, 4, 128)), "no error");
  const std::string rows = "attention: cuDNN: needs rows that begin at multiples of 16 bytes";
  Layer odd(1, 64, 4, 4, 64);
  odd.k.data = static_cast<std::byte*>(odd.k.data) + 2;
  EXPECT_EQ(forward(odd), rows);
  Layer wide(1, 64, 4, 4, 64);
  wide.out.stride[1] += 4;
  EXPECT_EQ(forward(wide), rows);
  const Layer plain(1, 64, 4, 4, 64);
  const std::string bounds = "attention: cuDNN: needs the number and length of documents";
  EXPECT_EQ(forward(plain, plain.documents(0, 64)), bounds);
  EXPECT_EQ(forward(plain, plain.documents(3, 0)), bounds);
  EXPECT_EQ(forward(plain, plain.documents(3, 64)), "no error");
  const Layer vast(1 << 16, 1 << 15, 4, 4, 64);
  EXPECT_EQ(forward(vast, vast.documents(3, 64)), "attention: cuDNN: has 32 bits for positions");
  EXPECT_EQ(forward(vast), "no error");
  Layer in_place(1, 64, 4, 4, 64);
  in_place.dv = in_place.v;
  EXPECT_EQ(forward(in_place), "no error");
  EXPECT_EQ(error_of([&] { (void)in_place.backward(); }), "attention: cuDNN: cannot compute gradients in place")
      << "other blocks still read v";
  try {
    refuse("why");
  } catch (const Error& e) {
    ASSERT_EQ(e.hints().size(), 1u);
    EXPECT_EQ(e.hints().front().setting, "attention");
  }
}

TEST(FusedAttention, DocumentsAreSequences) {
  const Layer layer(2, 3000, 8, 2, 64);
  const Documents documents = layer.documents(5, 1100);
  const FusedAttention call = layer.forward(documents), back = layer.backward(documents);
  EXPECT_TRUE(call.documents);
  EXPECT_EQ(call.batch, 5);
  EXPECT_EQ(call.positions, 1280) << "five times 256";
  EXPECT_EQ(call.q, (FusedAttention::Strides{3000 * 12 * 64, 12 * 64, 64}));
  EXPECT_EQ(call.lse, (FusedAttention::Strides{3000 * 8, 8, 1})) << "statistics of heads are adjacent";
  EXPECT_EQ(layer.forward().lse, (FusedAttention::Strides{3000 * 8, 1, 3000}));
  using Steps = std::vector<FusedAttention::Steps>;
  const Steps both{{3000 * 12 * 64, 12 * 64}, {3000 * 8 * 64, 8 * 64}, {3000 * 8, 8}};
  EXPECT_EQ(call.steps(), both);
  EXPECT_EQ(back.steps(), both) << "gradients have the strides of their tensors";
  FusedAttention apart = back;
  apart.dv[1] = 1024;
  EXPECT_EQ(apart.steps().size(), 4u);
  apart.backward = false;
  EXPECT_EQ(apart.steps(), both);
  const auto positions = [&](std::int64_t longest) { return layer.forward(layer.documents(1, longest)).positions; };
  EXPECT_EQ(positions(1), 128);
  EXPECT_EQ(positions(128), 128);
  EXPECT_EQ(positions(129), 256);
  EXPECT_EQ(positions(1024), 1024);
  EXPECT_EQ(positions(1025), 1280);
  EXPECT_EQ(positions(2100), 2560);
  EXPECT_EQ(positions(9999), 3072) << "no document is longer than its sequence";
  EXPECT_EQ(layer.forward(layer.documents(9999, 1)).batch, 6000) << "nor are there more than positions";
}

TEST(FusedAttention, DocumentsAreRoundedToPowersOfTwoAndDivided) {
  const auto parts = [](std::int64_t count, std::int64_t longest, bool backward) {
    const Layer layer(1, 8192, 32, 8, 64);
    const Documents documents = layer.documents(count, longest);
    const FusedAttention call = backward ? layer.backward(documents) : layer.forward(documents);
    const FusedParts p = parts_of(call, false);
    EXPECT_GE(p.each.batch * p.sequences, count) << "all fit";
    EXPECT_LT(p.each.batch * (p.sequences - 1), count) << "no part is empty";
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
  EXPECT_EQ(parts(3, 8192, true), (Parts{1, 3, 4})) << "by heads of a document";
}

TEST(FusedAttention, GradientsWithTooManyScoresAreDivided) {
  const auto parts = [](std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t g) {
    const FusedAttention call = Layer(b, t, h, g, 64).backward();
    const FusedParts p = parts_of(call, false);
    EXPECT_EQ(p.each.batch * p.sequences, call.batch);
    EXPECT_EQ(p.each.groups * p.groups, call.groups);
    EXPECT_EQ(p.each.heads * p.groups, call.heads);
    EXPECT_EQ(p.each.q, call.q) << "strides are unchanged";
    EXPECT_EQ(p.each.lse, (FusedAttention::Strides{p.each.heads * t, 1, t})) << "contiguous";
    EXPECT_TRUE(p.each.score_bytes() <= kMostScores || (p.each.batch == 1 && p.each.groups == 1));
    return std::pair(p.sequences, p.groups);
  };
  using Parts = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(parts(4, 2048, 32, 8), (Parts{1, 1})) << "2^30 bytes";
  EXPECT_EQ(parts(4, 2049, 32, 8), (Parts{2, 1}));
  EXPECT_EQ(parts(3, 4096, 32, 8), (Parts{3, 1}));
  EXPECT_EQ(parts(6, 2048, 32, 8), (Parts{2, 1}));
  EXPECT_EQ(parts(2, 8192, 32, 8), (Parts{2, 4}));
  EXPECT_EQ(parts(1, 8192, 12, 3), (Parts{1, 3})) << "two of three would fit, but parts are equal";
  EXPECT_EQ(parts(1, 65536, 16, 2), (Parts{1, 2})) << "the smallest part";
  EXPECT_EQ(Layer(4, 65536, 16, 16, 64).forward().score_bytes(), 0);
}

// Scores are stored if those of all heads fit, since that is faster; else dq is summed in order, by one call for all
// heads.
TEST(FusedAttention, OrderedSumsBoundTheMemoryOfLongSequences) {
  const auto sums = [](const FusedAttention& call) {
    const FusedParts p = parts_of(call, true);
    EXPECT_LE(p.each.score_bytes(), kMostScores);
    return std::tuple(p.each.sums, p.sequences, p.groups);
  };
  using Sums = std::tuple<FusedSums, std::int64_t, std::int64_t>;
  EXPECT_EQ(sums(Layer(1, 8192, 32, 8, 64).backward()), (Sums{FusedSums::ordered, 1, 1}))
      << "4 GiB of scores in all, 512 MiB of a group";
  EXPECT_EQ(sums(Layer(4, 2048, 32, 8, 128).backward()), (Sums{FusedSums::scores, 1, 1})) << "1 GiB";
  EXPECT_EQ(sums(Layer(8, 2048, 32, 8, 128).backward()), (Sums{FusedSums::ordered, 1, 1}));
  EXPECT_EQ(sums(Layer(2, 32768, 32, 8, 64).backward()), (Sums{FusedSums::ordered, 1, 1}));
  const Layer layer(1, 131072, 32, 8, 128);
  EXPECT_EQ(sums(layer.backward()), (Sums{FusedSums::ordered, 1, 1}));
  EXPECT_EQ(sums(layer.backward(layer.documents(3, 100000))), (Sums{FusedSums::ordered, 3, 1}));
  const FusedParts documents = parts_of(layer.backward(layer.documents(99, 8192)), true);
  EXPECT_EQ(documents.each.sums, FusedSums::ordered);
  EXPECT_LE(documents.each.assumed_workspace(), kMostScores);
  EXPECT_GT(2 * documents.each.assumed_workspace(), kMostScores);
  EXPECT_EQ(documents.sequences, divide_up<std::int64_t>(99, documents.each.batch));
  EXPECT_EQ(documents.groups, 1);
  EXPECT_EQ(sums(layer.backward(layer.documents(99, 256))), (Sums{FusedSums::scores, 1, 1})) << "512 MiB";
  const FusedAttention ordered = parts_of(layer.backward(), true).each;
  EXPECT_EQ(ordered.assumed_workspace(), std::int64_t{131072} * 32 * (8 * 128 + 8));
  EXPECT_GT(parts_of(layer.backward(), false).each.assumed_workspace(), std::int64_t{128} << 30);
}

// Each byte of the workspace of all parts counts twice. A machine may have any cuDNN or none.
TEST(FusedAttention, BytesOfGradients) {
  const Layer layer(1, 8192, 32, 8, 128);
  const GradientBytes whole = gradient_bytes({}, layer.q, 8, {});
  const double rows = 32 * 8192;
  EXPECT_EQ(whole.scores, 2 * (rows * 2 * 8192 + rows * (4 * 128 + 8))) << "in four parts";
  EXPECT_EQ(whole.sums, 2 * rows * (8 * 128 + 8));
  EXPECT_EQ(whole.ordered, has_ordered_sums({}));
  EXPECT_EQ(gradient_bytes({}, layer.q, 32, {}).sums, 2 * rows * (4 * 128 + 8)) << "dk and dv need no copies";
  EXPECT_FALSE(gradient_bytes({}, Layer(4, 2048, 32, 8, 128).q, 8, {}).ordered) << "1 GiB";
  const GradientBytes documents = gradient_bytes({}, layer.q, 8, layer.documents(3, 1024));
  EXPECT_EQ(documents.scores, 2 * 4 * (32.0 * 1024) * (2 * 1024 + 4 * 128 + 8)) << "room for four documents";
}

TEST(FusedAttention, AtomicSumsNeedNoScores) {
  const Layer layer(2, 32768, 32, 8, 64);
  const FusedAttention call = layer.backward({}, false);
  EXPECT_EQ(call.sums, FusedSums::atomic);
  EXPECT_EQ(call.score_bytes(), 0);
  EXPECT_NE(call, layer.backward()) << "another graph";
  for (const bool ordered : {false, true}) {
    const FusedParts p = parts_of(call, ordered);
    EXPECT_EQ(p.each, call);
    EXPECT_EQ(p.sequences * p.groups, 1);
  }
}

}  // namespace
}  // namespace fp8::ops
