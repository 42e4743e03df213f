// Calls of attention that cuDNN supports, and their division into parts. Graphs are tested in attention_cudnn_test.cu.
#include <gtest/gtest.h>

#include <string>

#include "fused_layer.h"

namespace fp8::ops {
namespace {

TEST(FusedAttention, SupportsGroupedHeadsOfAFusedProjection) {
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

TEST(FusedAttention, UnsupportedCalls) {
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
  EXPECT_FALSE(plain.forward(plain.documents(0, 64))) << "unknown number";
  EXPECT_FALSE(plain.forward(plain.documents(3, 0))) << "unknown length";
  EXPECT_TRUE(plain.forward(plain.documents(3, 64)));
  const Layer vast(1 << 16, 1 << 15, 4, 4, 64);
  EXPECT_FALSE(vast.forward(vast.documents(3, 64))) << "positions beyond 32 bits";
  EXPECT_TRUE(vast.forward());
  Layer in_place(1, 64, 4, 4, 64);
  in_place.dv = in_place.v;
  EXPECT_TRUE(in_place.forward());
  EXPECT_FALSE(in_place.backward()) << "other blocks still read v";
}

TEST(FusedAttention, DocumentsAreSequences) {
  const Layer layer(2, 3000, 8, 2, 64);
  const Documents documents = layer.documents(5, 1100);
  const FusedAttention call = *layer.forward(documents), back = *layer.backward(documents);
  EXPECT_TRUE(call.documents);
  EXPECT_EQ(call.batch, 5);
  EXPECT_EQ(call.positions, 1280) << "five times 256";
  EXPECT_EQ(call.q, (FusedAttention::Strides{3000 * 12 * 64, 12 * 64, 64}));
  EXPECT_EQ(call.lse, (FusedAttention::Strides{3000 * 8, 8, 1})) << "statistics of heads are adjacent";
  EXPECT_EQ(layer.forward()->lse, (FusedAttention::Strides{3000 * 8, 1, 3000}));
  using Steps = std::vector<FusedAttention::Steps>;
  const Steps both{{3000 * 12 * 64, 12 * 64}, {3000 * 8 * 64, 8 * 64}, {3000 * 8, 8}};
  EXPECT_EQ(call.steps(), both);
  EXPECT_EQ(back.steps(), both) << "gradients have the strides of their tensors";
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

TEST(FusedAttention, DocumentsAreRoundedToPowersOfTwoAndDivided) {
  const auto parts = [](std::int64_t count, std::int64_t longest, bool backward) {
    const Layer layer(1, 8192, 32, 8, 64);
    const Documents documents = layer.documents(count, longest);
    const FusedAttention call = backward ? *layer.backward(documents) : *layer.forward(documents);
    const FusedParts p = parts_of(call);
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
    const FusedAttention call = *Layer(b, t, h, g, 64).backward();
    const FusedParts p = parts_of(call);
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
  EXPECT_EQ(Layer(4, 65536, 16, 16, 64).forward()->score_bytes(), 0);
}

}  // namespace
}  // namespace fp8::ops
