// The kernels of this crate run on the host, thread by thread, against the host loop: the same bits in every type, at
// odd sizes, in parts, when skipping.
#include "cuda_shim.h"
//
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <tuple>

#include "adamw.cuh"
#include "blocks.h"

namespace fp8::optim {
namespace {

using shim::Launcher;

using Types = std::tuple<DType, DType, DType>;
class AdamWCuda : public testing::TestWithParam<Types> {};
INSTANTIATE_TEST_SUITE_P(All, AdamWCuda,
                         testing::Combine(testing::Values(DType::f32, DType::bf16),
                                          testing::Values(DType::f32, DType::bf16),
                                          testing::Values(DType::f32, DType::bf16)));

TEST_P(AdamWCuda, MatchesTheHostBitForBit) {
  const auto [master, moments, compute_weight] = GetParam();
  constexpr std::int64_t kOfBlock = kUpdateThreads / kUpdateLanes * kNoiseBlock;  // elements of a block of threads
  for (const std::int64_t n :
       {std::int64_t{1}, std::int64_t{127}, std::int64_t{128}, std::int64_t{2049}, 2 * kOfBlock + 77}) {
    State host(n, master, moments, compute_weight), device(n, master, moments, compute_weight);
    const Settings settings;
    for (std::int64_t t = 1; t <= 3; ++t) {
      host.next_gradient(t);
      device.next_gradient(t);
      const Gate gate{.gradient_scale = 0.3f, .skip = t == 2 ? 1 : 0};
      const Scalars scalars = scalars_of(settings, t, 1e-2, 42, &gate);
      *host.amax.as<float>() = *device.amax.as<float>() = -0.25f;
      adamw({}, host.whole(t == 1), settings, scalars);
      // In two parts of uneven length, the second of which begins within a noise block.
      for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, n / 3}, {n / 3, n}}) {
        if (begin < end) adamw_cuda(Launcher(), device.block(begin, end, t == 1), settings, scalars);
      }
      ASSERT_EQ(device.bytes() == host.bytes(), true) << n << ", update " << t;
    }
  }
}

// The elements are the last of a tensor whose indices need more than 32 bits.
TEST(AdamWCudaAlone, IndicesBeyond32Bits) {
  State host(300, DType::bf16, DType::bf16, DType::bf16), device(300, DType::bf16, DType::bf16, DType::bf16);
  State low(300, DType::bf16, DType::bf16, DType::bf16);
  const Settings settings;
  const Scalars scalars = scalars_of(settings, 1, 1e-2, 42, &kOpen);
  for (State* s : {&host, &device, &low}) {
    s->next_gradient(1);
    AdamwBlock block = s->whole();
    block.first_element = (s == &low ? 0 : std::int64_t{1} << 40) + 80;
    *s->amax.as<float>() = 0;
    s == &host ? adamw({}, block, settings, scalars) : adamw_cuda(Launcher(), block, settings, scalars);
  }
  EXPECT_EQ(device.bytes() == host.bytes(), true);
  EXPECT_EQ(low.bytes() == host.bytes(), false) << "the noise does not depend on the index";
}

TEST(AdamWCudaAlone, NeedsNeitherCopyNorAmax) {
  State host(300, DType::f32, DType::f32, DType::bf16), device(300, DType::f32, DType::f32, DType::bf16);
  const Settings settings;
  for (const State* s : {&host, &device}) {
    for (int i = 0; i < 300; ++i) s->gradient.as<float>()[i] = 0.01f * static_cast<float>(i);
    AdamwBlock block = s->whole();
    block.compute_weight = {};
    block.amax = {};
    const Scalars scalars = scalars_of(settings, 1, 1e-2, 1, &kOpen);
    s == &host ? adamw({}, block, settings, scalars) : adamw_cuda(Launcher(), block, settings, scalars);
  }
  EXPECT_EQ(device.bytes() == host.bytes(), true);
}

TEST(SumsCuda, MatchTheHostToRounding) {
  for (const std::int64_t n : {1, 3, 1023, 32768, 32769, 100001}) {
    const Tensor x(DType::f32, {n});
    for (std::int64_t i = 0; i < n; ++i) x.as<float>()[i] = std::sin(static_cast<float>(i));
    std::vector<double> partial(static_cast<std::size_t>(pieces_to_sum(n)));
    double squares = 0, again = 0, sum = 1000, want = 1000;
    add_sums_cuda<Square>(Launcher(), x.as<const float>(), n, partial.data(), &squares);
    add_sums_cuda<Square>(Launcher(), x.as<const float>(), n, partial.data(), &again);
    const double expected = squares_of(x.view());
    EXPECT_NEAR(squares, expected, 1e-13 * expected) << n;
    EXPECT_EQ(squares, again);
    add_sums_cuda<Itself>(Launcher(), x.as<const float>(), n, partial.data(), &sum);
    add_sum({}, x.view(), &want);
    EXPECT_NEAR(sum, want, 1e-12 * want) << n;
  }
}

TEST(SumsCuda, OfFewValuesAreInTheirOrder) {
  for (const std::size_t n : {0, 1, 3, 700}) {
    std::vector<double> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = (i % 2 == 0 ? 1e16 : 1.0) + static_cast<double>(i);
    double device = 0.5, host = 0.5, want = 0.5;
    add_in_order_cuda(Launcher(), values, &device);
    add_in_order({}, values, &host);
    for (const double value : values) want += value;
    EXPECT_EQ(device, want) << n;
    EXPECT_EQ(host, want) << n;
  }
}

TEST(GateCuda, MatchesTheHost) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const double clip : {0.0, 0.5, 1e9})
    for (const double loss : {2.5, nan, -inf})
      for (const double squares : {0.0, 9.0, 1e-300, inf, nan}) {
        Gate host{-1, -1}, device{-1, -1};
        set_gate({}, &loss, &squares, clip, &host);
        set_gate_cuda(Launcher(), &loss, &squares, clip, &device);
        EXPECT_EQ(std::bit_cast<std::uint32_t>(device.gradient_scale),
                  std::bit_cast<std::uint32_t>(host.gradient_scale));
        EXPECT_EQ(device.skip, host.skip);
        EXPECT_EQ(host.skip, std::isfinite(loss) && std::isfinite(squares) ? 0 : 1);
      }
}

}  // namespace
}  // namespace fp8::optim
