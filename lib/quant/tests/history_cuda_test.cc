// Delayed scaling in kernels, run on the host thread by thread: the same codes, amaxes, histories and scales.
#include <gtest/gtest.h>

#include <limits>

#include "codes.h"
#include "cuda.h"

namespace fp8::quant {
namespace {

using dtype::DType;
using tensor::Tensor;

TEST(HistoryCuda, UpdatesEqualTheHosts) {
  constexpr std::int64_t kTensors = 5;
  for (const std::int64_t length : {1, 2, 255, 256, 257, 1024})
    for (const AmaxAlgorithm algorithm : {AmaxAlgorithm::max, AmaxAlgorithm::most_recent}) {
      const auto slots = [&] {
        Tensor memory(DType::f32, {kTensors * (length + 3)});
        for (std::int64_t i = 0; i < kTensors * (length + 3); ++i) memory.as<float>()[i] = 1.0f;
        return memory;
      };
      const Tensor host = slots(), device = slots();
      const auto views = [&](const Tensor& t) {
        const View v = t.view();
        return ScaleSlots{v.rows(0, kTensors),
                          v.rows(3 * kTensors, (3 + length) * kTensors).reshaped({kTensors, length}),
                          v.rows(kTensors, 2 * kTensors), v.rows(2 * kTensors, 3 * kTensors)};
      };
      Numbers numbers;
      for (int step = 0; step < 20; ++step) {
        const std::int32_t skip = step == 7 ? 1 : 0;
        for (std::int64_t i = 0; i < kTensors; ++i) {
          const float amax = i == step % 9   ? kNan
                             : i == step % 8 ? kInf
                             : i == step % 7 ? 0.0f
                                             : std::fabs(numbers.next());
          host.as<float>()[i] = device.as<float>()[i] = amax;
        }
        const DelayedRule rule = delayed_rule(DType::e5m2, 1, algorithm);
        update_scales({}, views(host), rule, &skip);
        cuda::update_scales({}, views(device), rule, &skip);
        for (std::int64_t i = 0; i < kTensors * (length + 3); ++i)
          ASSERT_EQ(device.as<float>()[i], host.as<float>()[i]) << length << " " << step << " " << i;
      }
    }
}

TEST(HistoryCuda, KnownScalesEqualTheHosts) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Matrix x(type, 129, 257, Layout::strided_rows);
    x.set(3, 4, std::numeric_limits<float>::quiet_NaN());
    device::Arena arena(std::size_t{1} << 22, device::DeviceType::host);
    Context context;
    context.device = device::DeviceType::cuda;
    context.arena = &arena;
    Host host;
    const Tensor there(DType::f32, {3}), here(DType::f32, {3});
    const auto known = [](const Tensor& t) {
      t.as<float>()[0] = 20.0f;
      t.as<float>()[1] = 0.05f;
      t.as<float>()[2] = 0.25f;
      return KnownScale{t.view().rows(0, 1), t.view().rows(1, 2), t.view().rows(2, 3)};
    };
    CastOptions options{.rule = ScaleRule::delayed};
    const Cast cast{DType::e5m2, Granularity::tensor};
    CastCounts counts, expected;
    options.known = known(there), options.counts = &counts;
    const QuantizedPair bytes = cuda::quantize(context, x.view, {cast, cast}, options);
    options.known = known(here), options.counts = &expected;
    const QuantizedPair on_host = quantize_both(host.context, x.view, {cast, cast}, options);
    expect_same(bytes.last, on_host.last);
    expect_same(bytes.first, on_host.first);
    EXPECT_EQ(there.as<float>()[2], here.as<float>()[2]);
    EXPECT_EQ(counts.saturated, expected.saturated);
    const Tensor amax(DType::f32, {1});
    cuda::record_amax({}, x.view, amax.view());
    EXPECT_EQ(*amax.as<float>(), here.as<float>()[2]);
    *amax.as<float>() = 1e9f;
    cuda::record_amax({}, x.view, amax.view());
    EXPECT_EQ(*amax.as<float>(), 1e9f);
  }
}

// The scale follows from the tensor itself, and its amax is recorded.
TEST(HistoryCuda, OwnAmaxesEqualTheHosts) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Matrix x(type, 5, 257, Layout::strided_rows);
    x.set(3, 4, std::numeric_limits<float>::quiet_NaN());
    x.set(4, 256, -24.0f);
    device::Arena arena(std::size_t{1} << 22, device::DeviceType::host);
    Context context;
    context.device = device::DeviceType::cuda;
    context.arena = &arena;
    Host host;
    const Tensor scale(DType::f32, {1}), there(DType::f32, {1}), here(DType::f32, {1});
    const Cast cast{DType::e5m2, Granularity::tensor};
    CastOptions options{.rule = ScaleRule::delayed};
    options.known = {scale.view(), scale.view(), there.view(), true};
    const QuantizedPair bytes = cuda::quantize(context, x.view, {cast, cast}, options);
    options.known.amax = here.view();
    const QuantizedPair on_host = quantize_both(host.context, x.view, {cast, cast}, options);
    expect_same(bytes.last, on_host.last);
    expect_same(bytes.first, on_host.first);
    EXPECT_EQ(*bytes.first.scale.as<float>(), current_scale(24, dtype::max_of(DType::e5m2), false));
    EXPECT_EQ(*there.as<float>(), 24.0f);
    EXPECT_EQ(*here.as<float>(), 24.0f);
  }
}

}  // namespace
}  // namespace fp8::quant
