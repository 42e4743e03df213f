// The kernels of this crate on the host, thread by thread, against the host's own loop: the same bits in every type, at
// ragged sizes, in parts, when skipping.
#include "cuda_shim.h"
//
#include <gtest/gtest.h>

#include <tuple>

#include "adamw_cuda.cuh"
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

TEST_P(AdamWCuda, HasTheHostsBits) {
  const auto [master, moments, copy] = GetParam();
  for (const std::int64_t n : {1, 127, 128, 2049, 5000}) {
    State host(n, master, moments, copy), device(n, master, moments, copy);
    const Settings settings;
    for (std::int64_t t = 1; t <= 3; ++t) {
      host.next_gradient(t);
      device.next_gradient(t);
      Scalars scalars = scalars_of(settings, t, 1e-2, 3.0, 1.0, 42);
      scalars.skip = t == 2 ? 1 : 0;
      *host.amax.as<float>() = *device.amax.as<float>() = -0.25f;
      adamw({}, host.whole(t == 1), settings, scalars);
      // In two parts of uneven length, the second of which begins within a block of noise.
      for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, n / 3}, {n / 3, n}}) {
        if (begin < end) adamw_cuda(Launcher(), device.block(begin, end, t == 1), settings, scalars);
      }
      ASSERT_EQ(device.bytes() == host.bytes(), true) << n << ", update " << t;
    }
  }
}

TEST(AdamWCudaAlone, NeedsNeitherCopyNorAmax) {
  State host(300, DType::f32, DType::f32, DType::bf16), device(300, DType::f32, DType::f32, DType::bf16);
  const Settings settings;
  for (const State* s : {&host, &device}) {
    for (int i = 0; i < 300; ++i) s->gradient.as<float>()[i] = 0.01f * static_cast<float>(i);
    Block block = s->whole();
    block.copy = {};
    block.amax = {};
    const Scalars scalars = scalars_of(settings, 1, 1e-2, 1.0, 0, 1);
    s == &host ? adamw({}, block, settings, scalars) : adamw_cuda(Launcher(), block, settings, scalars);
  }
  EXPECT_EQ(device.bytes() == host.bytes(), true);
}

TEST(SquareSumCuda, IsTheSumToTheLastDigits) {
  for (const std::int64_t n : {1, 3, 1023, 32768, 32769, 100001}) {
    const Tensor x(DType::f32, {n});
    for (std::int64_t i = 0; i < n; ++i) x.as<float>()[i] = std::sin(static_cast<float>(i));
    std::vector<double> partial(static_cast<std::size_t>(pieces_to_sum(n)));
    double total = -1, again = -1;
    square_sum_cuda(Launcher(), x.as<const float>(), n, partial.data(), &total);
    square_sum_cuda(Launcher(), x.as<const float>(), n, partial.data(), &again);
    const double expected = sum_of_squares({}, x.view());
    EXPECT_NEAR(total, expected, 1e-13 * expected) << n;
    EXPECT_EQ(total, again);
  }
}

}  // namespace
}  // namespace fp8::optim
