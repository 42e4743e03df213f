// The kernels of this crate run on the host, thread by thread, against the host loop: the same bits in every type, at
// odd sizes, in parts, when skipping.
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <tuple>

#include "blocks.h"
#include "cuda.h"
#include "far_rows.h"
#include "shim_launches.h"
#include "update_sizes.h"

namespace fp8::optim {
namespace {

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
        if (begin < end) cuda::adamw({}, device.block(begin, end, t == 1), settings, scalars);
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
    s == &host ? adamw({}, block, settings, scalars) : cuda::adamw({}, block, settings, scalars);
  }
  EXPECT_EQ(device.bytes() == host.bytes(), true);
  EXPECT_EQ(low.bytes() == host.bytes(), false) << "the noise does not depend on the index";
}

// The last elements of arrays of more than 2^32.
TEST(AdamWCudaAlone, ElementsBeyond32Bits) {
  constexpr std::int64_t kLast = 300;
  for (const DType type : {DType::f32, DType::bf16}) {
    State near(kLast, type, type, type);
    near.next_gradient(1);
    const test::FarRows master(type, 2, kLast), gradient(DType::f32, 2, kLast), m(type, 2, kLast), v(type, 2, kLast),
        compute_weight(type, 2, kLast);
    master.put(near.master.view().reshaped({1, kLast}));
    gradient.put(near.gradient.view().reshaped({1, kLast}));
    const std::int64_t first = master.view.stride[0];
    const auto all = [&](const test::FarRows& rows) {
      return tensor::make_view(rows.view.data, rows.view.dtype, device::DeviceType::host, {first + kLast});
    };
    const Settings settings;
    const Scalars scalars = scalars_of(settings, 1, 1e-2, 42, &kOpen);
    const Tensor amax(DType::f32, {1});
    AdamwBlock block = near.whole();
    block.first_element = first;
    adamw({}, block, settings, scalars);
    const shim::Launches launches(shim::Blocks::last);
    cuda::adamw({},
                {.master = all(master),
                 .gradient = all(gradient),
                 .m = all(m),
                 .v = all(v),
                 .compute_weight = all(compute_weight),
                 .amax = amax.view(),
                 .decay = true,
                 .tensor = block.tensor,
                 .first_element = 0},
                settings, scalars);
    for (const auto& [far, want] :
         {std::pair{&master, &near.master}, {&m, &near.m}, {&v, &near.v}, {&compute_weight, &near.compute_weight}}) {
      const Tensor got(type, {1, kLast});
      far->get(got.view());
      EXPECT_EQ(bytes_of(got) == bytes_of(*want), true);
    }
    EXPECT_EQ(*amax.as<float>(), *near.amax.as<float>());
  }
}

// A shard may begin at any index while its arrays are aligned, and one array may be less aligned than the others.
TEST(AdamWCudaAlone, AlignmentOfPartsAndArrays) {
  constexpr std::int64_t kSize = 600;
  const Settings settings;
  const Scalars scalars = scalars_of(settings, 1, 1e-2, 42, &kOpen);
  for (const std::int64_t first : {80, 81})
    for (const std::int64_t shift : {0, 1}) {
      State host(kSize, DType::f32, DType::bf16, DType::bf16), device(kSize, DType::f32, DType::bf16, DType::bf16);
      const Tensor gradients(DType::f32, {kSize + 1});
      for (State* s : {&host, &device}) {
        s->next_gradient(1);
        AdamwBlock block = s->whole();
        block.first_element = first;
        block.gradient = gradients.view().rows(shift, shift + kSize);
        std::memcpy(block.gradient.data, s->gradient.view().data, s->gradient.view().bytes());
        s == &host ? adamw({}, block, settings, scalars) : cuda::adamw({}, block, settings, scalars);
      }
      EXPECT_EQ(device.bytes() == host.bytes(), true) << first << ", " << shift;
    }
}

// The largest magnitude is with each thread of a warp, and with some of the next one.
TEST(AdamWCudaAlone, MaximaOfEveryThread) {
  constexpr std::int64_t kSize = 9 * kNoiseBlock + 77;
  State state(kSize, DType::f32, DType::bf16, DType::bf16);
  const Settings settings;
  const Gate skipping{.gradient_scale = 1, .skip = 1};
  const Scalars scalars = scalars_of(settings, 1, 1e-2, 42, &skipping);
  for (std::int64_t thread = 0; thread < kSize / kNoiseBlock * kUpdateLanes; ++thread) {
    const std::int64_t i = thread / kUpdateLanes * kNoiseBlock + thread % 8 * kNoiseLanes +
                           thread % kUpdateLanes * kAdjacent + thread / 8 % kAdjacent;
    const float before = get(state.master, i);
    set(state.master, i, -3.0f);
    *state.amax.as<float>() = 0;
    cuda::adamw({}, state.whole(), settings, scalars);
    EXPECT_EQ(*state.amax.as<float>(), 3.0f) << i;
    set(state.master, i, before);
  }
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
    s == &host ? adamw({}, block, settings, scalars) : cuda::adamw({}, block, settings, scalars);
  }
  EXPECT_EQ(device.bytes() == host.bytes(), true);
}

// A context with memory for the sums of blocks, which are zero at first.
struct ArenaOnDevice {
  static constexpr std::size_t kBytes = std::size_t{2} << 20;
  device::Arena arena{kBytes, device::DeviceType::host};
  Context context{.device = device::DeviceType::cuda, .arena = &arena};
  ArenaOnDevice() {
    std::memset(arena.allocate(kBytes, "zeros"), 0, kBytes);
    arena.release(0);
  }
};

TEST(SumsCuda, MatchTheHostToRounding) {
  for (const std::int64_t n : {1, 3, 1023, 32768, 32769, 100001}) {
    const Tensor x(DType::f32, {n});
    for (std::int64_t i = 0; i < n; ++i) x.as<float>()[i] = std::sin(static_cast<float>(i));
    ArenaOnDevice memory;
    double squares = 0, again = 0, sum = 1000, want = 1000;
    cuda::add_squares(memory.context, x.view(), &squares);
    cuda::add_squares(memory.context, x.view(), &again);
    const double expected = squares_of(x.view());
    EXPECT_NEAR(squares, expected, 1e-13 * expected) << n;
    EXPECT_EQ(squares, again);
    cuda::add_sum(memory.context, x.view(), &sum);
    add_sum({}, x.view(), &want);
    EXPECT_NEAR(sum, want, 1e-12 * want) << n;
  }
}

// The last of more than 2^32 elements.
TEST(SumsCuda, ElementsBeyond32Bits) {
  constexpr std::int64_t kLast = 300;
  const Tensor x(DType::f32, {1, kLast});
  for (std::int64_t i = 0; i < kLast; ++i) x.as<float>()[i] = std::sin(static_cast<float>(i));
  const test::FarRows far(DType::f32, 2, kLast);
  far.put(x.view());
  const std::int64_t n = far.view.stride[0] + kLast;
  ArenaOnDevice memory;
  double squares = 0;
  const shim::Launches launches(shim::Blocks::last);
  cuda::add_squares(memory.context, tensor::make_view(far.view.data, DType::f32, device::DeviceType::host, {n}),
                    &squares);
  const double expected = squares_of(x.view());
  EXPECT_NEAR(squares, expected, 1e-13 * expected);
}

TEST(SumsCuda, OfFewValuesAreInTheirOrder) {
  for (const std::size_t n : {0, 1, 3, 700}) {
    std::vector<double> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = (i % 2 == 0 ? 1e16 : 1.0) + static_cast<double>(i);
    double device = 0.5, host = 0.5, want = 0.5;
    cuda::add_in_order({}, values, &device);
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
        cuda::set_gate({}, &loss, &squares, clip, &device);
        EXPECT_EQ(std::bit_cast<std::uint32_t>(device.gradient_scale),
                  std::bit_cast<std::uint32_t>(host.gradient_scale));
        EXPECT_EQ(device.skip, host.skip);
        EXPECT_EQ(host.skip, std::isfinite(loss) && std::isfinite(squares) ? 0 : 1);
      }
}

}  // namespace
}  // namespace fp8::optim
