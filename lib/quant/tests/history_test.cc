// Delayed scaling: one update of a history, updates of many tensors, and casts with known scales, which record amaxes.
// The bits of long sequences are tested by tests/golden.
#include "fp8/quant/history.h"

#include <gtest/gtest.h>

#include <vector>

#include "matrices.h"

namespace fp8::quant {
namespace {

using dtype::Bf16;
using dtype::DType;
using tensor::Tensor;
using tensor::View;

constexpr Cast kE4m3{DType::e4m3, Granularity::tensor}, kE5m2{DType::e5m2, Granularity::tensor};

TEST(History, TheOldestAmaxCountsALastTime) {
  std::vector<float> h{2, 7, 1, 4};
  const DelayedRule rule = delayed_rule(DType::e4m3, 0, AmaxAlgorithm::max);
  EXPECT_EQ(update_history(h, rule, 1), 64.0f);
  EXPECT_EQ(h, (std::vector<float>{0, 1, 4, 2}));
  EXPECT_EQ(update_history(h, rule, 5), 5.0f) << "no amax was recorded";
  EXPECT_EQ(h, (std::vector<float>{0, 1, 4, 2}));
}

TEST(History, MarginAndMostRecent) {
  std::vector<float> h{2, 7};
  EXPECT_EQ(update_history(h, delayed_rule(DType::e5m2, 3, AmaxAlgorithm::most_recent), 1), 57344.0f / 8 / 2);
  std::vector<float> one{7};
  EXPECT_EQ(update_history(one, delayed_rule(DType::e4m3, 0, AmaxAlgorithm::max), 1), 64.0f);
  EXPECT_EQ(one.front(), 0.0f);
}

TEST(History, UnusualAmaxesKeepTheScale) {
  for (const float amax : {0.0f, kInf, kNan}) EXPECT_EQ(delayed_scale(amax, 448, 3), 3.0f);
  EXPECT_EQ(delayed_scale(0x1p-149f, 448, 3), kLargestFloat);
}

TEST(UpdateScales, SkippedStepsAndInfinityLeaveHistories) {
  const Tensor amax(DType::f32, {3}), history(DType::f32, {3, 2}), scale(DType::f32, {3}), inverse(DType::f32, {3});
  const ScaleSlots slots{amax.view(), history.view(), scale.view(), inverse.view()};
  const DelayedRule rule = delayed_rule(DType::e4m3, 0, AmaxAlgorithm::max);
  const auto record = [&](float first, float second) {
    amax.as<float>()[0] = first;
    amax.as<float>()[1] = second;
    for (int i = 0; i < 3; ++i) scale.as<float>()[i] = 8.0f;
  };
  const std::int32_t skipped = 1, taken = 0;
  record(7, 14);
  update_scales({}, slots, rule, &skipped);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(scale.as<float>()[i], 8.0f);
  EXPECT_EQ(amax.as<float>()[0], 0.0f);
  EXPECT_EQ(inverse.as<float>()[2], 0.125f);
  record(7, kInf);
  update_scales({}, slots, rule, &taken);
  EXPECT_EQ(scale.as<float>()[0], 64.0f);
  EXPECT_EQ(inverse.as<float>()[0], 1.0f / 64);
  EXPECT_EQ(scale.as<float>()[1], 8.0f);
  EXPECT_EQ(history.as<float>()[1], 7.0f);
  EXPECT_EQ(history.as<float>()[3], 0.0f) << "infinity is not entered";
  record(kNan, 3.5f);
  update_scales({}, slots, rule, nullptr);
  EXPECT_EQ(history.as<float>()[1], 7.0f) << "NaN is not entered";
  EXPECT_EQ(scale.as<float>()[1], 128.0f);
  EXPECT_EQ(error_of([&] {
              update_scales({}, {amax.view(), history.view(), scale.view(), amax.view().rows(0, 2)}, rule, nullptr);
            }),
            "update_scales: amaxes, histories and scales differ in number");
}

// A known scale, its reciprocal, and an amax.
struct Known {
  Known(float scale, float amax) : memory(DType::f32, {3}) {
    memory.as<float>()[0] = scale;
    memory.as<float>()[1] = 1 / scale;
    memory.as<float>()[2] = amax;
  }
  KnownScale slot() const {
    const View v = memory.view();
    return {v.rows(0, 1), v.rows(1, 2), v.rows(2, 3)};
  }
  float amax() const { return memory.as<float>()[2]; }
  Tensor memory;
};

Tensor filled_amax(float value) {
  Tensor t(DType::f32, {1});
  *t.as<float>() = value;
  return t;
}

// Codes are those of cast_to_bytes() with the same scale, and the amax is that of amax().
TEST(KnownScale, CodesAndAmaxInOnePass) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const Layout layout : {Layout::contiguous, Layout::strided_rows, Layout::columns_first})
      for (const float scale : {3.0f, 100.0f}) {  // 100 saturates
        Matrix x(type, 130, 300, layout);
        x.set(129, 299, -12.0f);
        x.set(7, 7, kNan);
        Host host;
        CastCounts counts, expected;
        const Known known(scale, 0.5f);
        const Quantized q = quantize(host.context, x.view, kE4m3, ContractionAxis::first,
                                     {.counts = &counts, .rule = ScaleRule::delayed, .known = known.slot()});
        EXPECT_EQ(q.scale.data, known.memory.view().data);
        const Tensor bytes(DType::u8, {130, 300}), amax_of_x(DType::f32, {1});
        cast_to_bytes(host.context, x.view, DType::e4m3, &scale, bytes.view(), &expected);
        for (std::int64_t r = 0; r < 130; ++r)
          for (std::int64_t c = 0; c < 300; ++c) {
            const Bf16 code = q.codes.as<Bf16>()[r * q.codes.stride[0] + c * q.codes.stride[1]];
            ASSERT_TRUE(same(dtype::to_float(code), dtype::from_e4m3(bytes.as<std::uint8_t>()[r * 300 + c])));
          }
        EXPECT_EQ(counts.saturated, expected.saturated);
        EXPECT_EQ(counts.underflowed, expected.underflowed);
        amax(host.context, x.view, Granularity::tensor, ContractionAxis::last, amax_of_x.view(), true);
        EXPECT_EQ(known.amax(), *amax_of_x.as<float>());
        const Known recorded(1, 0.5f), larger(1, 100.0f);
        record_amax(host.context, x.view, recorded.slot().amax);
        record_amax(host.context, x.view, larger.slot().amax);
        EXPECT_EQ(recorded.amax(), known.amax());
        EXPECT_EQ(larger.amax(), 100.0f);
      }
}

TEST(KnownScale, WithoutAnAmaxNothingIsRecorded) {
  const Matrix x(DType::bf16, 8, 16);
  Host host;
  const Known known(2, 0);
  KnownScale slot = known.slot();
  slot.amax = {};
  const QuantizedPair pair =
      quantize_both(host.context, x.view, {kE4m3, kE5m2}, {.rule = ScaleRule::delayed, .known = slot});
  EXPECT_EQ(pair.last.scale.data, pair.first.scale.data);
  EXPECT_EQ(known.amax(), 0.0f);
  const Cast row{DType::e4m3, Granularity::row};
  EXPECT_EQ(error_of([&] { quantize(host.context, x.view, row, ContractionAxis::last, {.known = slot}); }),
            "quantize: a known scale is one number for a whole tensor");
}

// With own_amax the codes are those of the recipe current, the scale given is not read, and the amax is recorded.
TEST(KnownScale, OwnAmaxCastsAsCurrentDoes) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const Layout layout : {Layout::contiguous, Layout::strided_rows, Layout::columns_first})
      for (const bool power_of_2 : {false, true})
        for (const bool given : {false, true}) {
          Matrix x(type, 130, 300, layout);
          x.set(129, 299, -24.0f);
          x.set(7, 7, kNan);
          Host host;
          const Known known(kNan, 0.5f);
          KnownScale slot = known.slot();
          slot.own_amax = true;
          const Tensor amax = filled_amax(24.0f);
          CastOptions of_delayed{.power_of_2 = power_of_2, .rule = ScaleRule::delayed, .known = slot},
              of_current{.power_of_2 = power_of_2, .rule = ScaleRule::current};
          if (given) of_delayed.amax = amax.view();
          const QuantizedPair delayed = quantize_both(host.context, x.view, {kE4m3, kE5m2}, of_delayed),
                              current = quantize_both(host.context, x.view, {kE4m3, kE5m2}, of_current);
          for (const auto& [a, b] : {std::pair{delayed.last, current.last}, {delayed.first, current.first}}) {
            EXPECT_EQ(*a.scale.as<float>(), *b.scale.as<float>());
            EXPECT_EQ(*a.inverse_scale.as<float>(), *b.inverse_scale.as<float>());
            for (std::int64_t i = 0; i < a.codes.size(); ++i)
              ASSERT_EQ(a.codes.as<Bf16>()[i].bits, b.codes.as<Bf16>()[i].bits) << i;
          }
          EXPECT_EQ(known.amax(), 24.0f);
          quantize(host.context, Matrix(type, 2, 2, layout).view, kE4m3, ContractionAxis::last, of_delayed);
          EXPECT_EQ(known.amax(), 24.0f) << "the larger amax stays";
        }
}

// A tensor that saw no rows in a step has no amax. A tensor of zeros has the amax 0, which is none as well.
TEST(History, WithoutAnAmaxKeepsScaleAndHistory) {
  for (const bool zeros : {false, true}) {
    const Tensor amax(DType::f32, {1}), history(DType::f32, {1, 4}), scale(DType::f32, {1}), inverse(DType::f32, {1});
    const ScaleSlots slots{amax.view(), history.view(), scale.view(), inverse.view()};
    const DelayedRule rule = delayed_rule(DType::e4m3, 0, AmaxAlgorithm::max);
    for (const float a : {7.0f, 14.0f}) {
      *amax.as<float>() = a;
      update_scales({}, slots, rule, nullptr);
    }
    const std::vector<float> before(history.as<float>(), history.as<float>() + 4);
    EXPECT_EQ(before, (std::vector<float>{0, 0, 7, 14}));
    EXPECT_EQ(*scale.as<float>(), 32.0f);
    for (int step = 0; step < 5; ++step) {
      if (zeros) {
        Host host;
        const Tensor x(DType::bf16, {4, 16});
        const KnownScale known{scale.view(), inverse.view(), amax.view()};
        quantize(host.context, x.view(), kE4m3, ContractionAxis::last, {.rule = ScaleRule::delayed, .known = known});
      }
      EXPECT_EQ(*amax.as<float>(), 0.0f);
      update_scales({}, slots, rule, nullptr);
      EXPECT_EQ(std::vector<float>(history.as<float>(), history.as<float>() + 4), before);
      EXPECT_EQ(*scale.as<float>(), 32.0f);
      EXPECT_EQ(*inverse.as<float>(), 1.0f / 32);
    }
    *amax.as<float>() = 3.5f;  // the history goes on from where it was
    update_scales({}, slots, rule, nullptr);
    EXPECT_EQ(std::vector<float>(history.as<float>(), history.as<float>() + 4), (std::vector<float>{0, 7, 14, 3.5f}));
    EXPECT_EQ(*scale.as<float>(), 32.0f);
  }
}

}  // namespace
}  // namespace fp8::quant
