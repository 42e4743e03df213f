// Casts of groups of rows by the kernels, on the host: each group has the codes, scales and counts that the host gives
// it as a matrix alone, with few launches, in memory that does not depend on how rows are divided.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "codes.h"
#include "fp8/quant/groups.h"
#include "shim_launches.h"

namespace fp8::quant {
namespace {

using dtype::Bf16;
using dtype::DType;
using tensor::Tensor;

// No row; one; rows that are not multiples of 16, 8 or 128; whole tiles; a group behind the end.
const std::vector<std::int64_t> kFirst{0, 0, 1, 10, 138, 266, 571, 580, 580};
constexpr std::int64_t kColumns = 272;

// A context of type CUDA with host memory.
struct Device {
  explicit Device(bool dry = false)
      : arena(dry ? device::Arena() : device::Arena(std::size_t{1} << 24, device::DeviceType::host)) {
    context.device = device::DeviceType::cuda;
    context.arena = &arena;
    context.dry = dry;
  }
  device::Arena arena;
  Context context;
};

View on_device(View v) {
  v.device = device::DeviceType::cuda;
  return v;
}

struct Case {
  const char* name;
  CastPair casts;
  ScaleRule rule;
  std::size_t launches;
};
constexpr Cast kTensor{DType::e5m2, Granularity::tensor}, kRow{DType::e4m3, Granularity::row},
    kBlocks{DType::e4m3, Granularity::block1x128}, kSquares{DType::e4m3, Granularity::block128x128};
const Case kCases[] = {{"tensor", {kTensor, kTensor}, ScaleRule::torchao, 4},
                       {"tensor, one layout", {{}, kTensor}, ScaleRule::current, 4},
                       {"rows", {kRow, kRow}, ScaleRule::torchao, 4},
                       {"rows, one layout", {kRow, {}}, ScaleRule::torchao, 4},
                       {"blocks", {kBlocks, kBlocks}, ScaleRule::blockwise, 1},
                       {"squares", {kSquares, kSquares}, ScaleRule::blockwise, 1},
                       {"squares, one layout", {{}, kSquares}, ScaleRule::blockwise, 1}};

// Rows of groups have different magnitudes, and the last columns of a wider matrix are not cast.
Matrix rows_of_groups() {
  Matrix x(DType::bf16, kFirst.back(), kColumns + 16);
  for (std::int64_t r = 0; r < kFirst.back(); ++r) x.set(r, r % kColumns, static_cast<float>(r * r % 1013) * 8);
  return x;
}

TEST(GroupsCuda, EachGroupEqualsTheHosts) {
  const Matrix matrix = rows_of_groups();
  const View x = matrix.view.columns(0, kColumns);
  for (const Case& c : kCases)
    for (const bool power_of_2 : {false, true}) {
      SCOPED_TRACE(c.name);
      Device device;
      CastCounts counts, expected;
      const shim::Launches launches;
      const std::vector<QuantizedPair> groups =
          quantize_groups(device.context, on_device(x), kFirst, c.casts,
                          {.power_of_2 = power_of_2, .counts = &counts, .rule = c.rule}, {});
      EXPECT_LE(launches.grids().size(), c.launches);
      ASSERT_EQ(groups.size() + 1, kFirst.size());
      for (std::size_t g = 0; g < groups.size(); ++g) {
        if (kFirst[g] == kFirst[g + 1]) continue;
        Host host;
        const QuantizedPair alone = quantize_both(host.context, x.rows(kFirst[g], kFirst[g + 1]), c.casts,
                                                  {.power_of_2 = power_of_2, .counts = &expected, .rule = c.rule});
        if (c.casts.last.fp8()) expect_same(groups[g].last, alone.last);
        if (c.casts.first.fp8()) expect_same(groups[g].first, alone.first);
      }
      EXPECT_EQ(counts.elements, expected.elements);
      EXPECT_EQ(counts.saturated, expected.saturated);
      EXPECT_EQ(counts.underflowed, expected.underflowed);
    }
}

std::size_t kept_bytes(const device::Arena& arena) {
  for (const device::Usage& u : arena.usage_at_peak())
    if (u.category == "activation codes") return u.bytes;
  return 0;
}

// Codes and scales that are kept outlive the arena's, and both casts are counted. Their memory is that of the most
// rows.
TEST(GroupsCuda, KeptCodesEqualTheHosts) {
  const Matrix matrix = rows_of_groups();
  const View x = matrix.view.columns(0, kColumns);
  for (const Case& c : kCases) {
    if (!c.casts.last.fp8() || !c.casts.first.fp8()) continue;
    SCOPED_TRACE(c.name);
    Device device;
    device::PooledMemory memory(device.arena);
    CastCounts counts, expected;
    std::vector<QuantizedPair> groups;
    {
      const device::Scope scope(device.arena);
      const shim::Launches launches;
      groups = quantize_groups(device.context, on_device(x), kFirst, c.casts, {.counts = &counts, .rule = c.rule}, {},
                               {&memory, x.shape[0] + 50});
      EXPECT_LE(launches.grids().size(), c.launches);
    }
    std::memset(device.arena.allocate(std::size_t{1} << 20, "test"), 0x7f, std::size_t{1} << 20);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (kFirst[g] == kFirst[g + 1]) continue;
      Host host;
      const View rows = x.rows(kFirst[g], kFirst[g + 1]);
      const CastOptions options{.counts = &expected, .rule = c.rule};
      (void)quantize(host.context, rows, c.casts.last, ContractionAxis::last, options);
      expect_same(groups[g].first, quantize(host.context, rows, c.casts.first, ContractionAxis::first, options));
    }
    EXPECT_EQ(counts.elements, expected.elements);
    EXPECT_EQ(counts.underflowed, expected.underflowed);
    Device fewer;
    device::PooledMemory of_fewer(fewer.arena);
    (void)quantize_groups(fewer.context, on_device(x.rows(0, 10)),
                          std::vector<std::int64_t>{0, 0, 1, 2, 3, 4, 5, 6, 10}, c.casts, {.rule = c.rule}, {},
                          {&of_fewer, x.shape[0] + 50});
    EXPECT_EQ(kept_bytes(fewer.arena), kept_bytes(device.arena));
    EXPECT_GT(kept_bytes(fewer.arena), 0U);
  }
}

TEST(GroupsCuda, CodesAreKeptWhereTheyTakeLessMemory) {
  const Device device;
  const auto keeps = [&](std::int64_t rows, std::int64_t groups, const CastPair& casts, bool emulate = false) {
    return keeps_groups(device.context,
                        tensor::make_view(nullptr, DType::bf16, device::DeviceType::cuda, {rows, kColumns}), groups,
                        casts, {.emulate = emulate}, {});
  };
  EXPECT_TRUE(keeps(100, 4, {kTensor, kTensor}));
  EXPECT_FALSE(keeps(100, 8, {kTensor, kTensor})) << "padding of each group";
  EXPECT_TRUE(keeps(10000, 512, {kTensor, kTensor}));
  EXPECT_FALSE(keeps(100000, 513, {kTensor, kTensor})) << "two launches";
  EXPECT_FALSE(keeps(100, 4, {kTensor, kTensor}, true)) << "emulated codes have two bytes";
  EXPECT_FALSE(keeps(100, 4, {kTensor, {}})) << "backward reads x";
}

// Slots of delayed scales, two floats apart, of which those of some groups are not known and not read.
struct Slots {
  Slots(std::int64_t groups, const std::function<bool(std::int64_t)>& is_known)
      : scale(DType::f32, {2 * groups}), inverse(DType::f32, {2 * groups}), amax(DType::f32, {2 * groups}) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const bool own = !is_known(g);
      scale.as<float>()[2 * g] = own ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(g + 1) / 4;
      inverse.as<float>()[2 * g] = 1 / scale.as<float>()[2 * g];
      amax.as<float>()[2 * g] = g == 3 ? 1e9f : 0;
      known.push_back({of(scale, g), of(inverse, g), of(amax, g), own});
    }
  }
  static View of(const Tensor& t, std::int64_t g) { return t.view().rows(2 * g, 2 * g + 1); }
  std::vector<KnownScale> on_device() const {
    std::vector<KnownScale> all = known;
    for (KnownScale& k : all)
      for (View* v : {&k.scale, &k.inverse_scale, &k.amax}) *v = quant::on_device(*v);
    return all;
  }
  Tensor scale, inverse, amax;
  std::vector<KnownScale> known;
};

float largest_of(const View& x) {
  float largest = 0;
  for (std::int64_t r = 0; r < x.shape[0]; ++r)
    for (std::int64_t i = 0; i < x.shape[1]; ++i)
      largest = std::max(largest, std::fabs(dtype::to_float(x.as<Bf16>()[r * x.stride[0] + i])));
  return largest;
}

// A group whose scale is not known has that of its own amax. All amaxes are recorded.
TEST(GroupsCuda, KnownScales) {
  const Matrix matrix = rows_of_groups();
  const View x = matrix.view.columns(0, kColumns);
  const std::int64_t groups = std::ssize(kFirst) - 1;
  const CastPair casts{kTensor, kTensor};
  const CastOptions options{.rule = ScaleRule::delayed};
  Device planned(true);
  (void)quantize_groups(planned.context, on_device(x), kFirst, casts, options,
                        Slots(groups, [](std::int64_t) { return false; }).on_device());
  for (const std::int64_t period : {1, 2, 3, 9}) {  // of groups that are not known, the first one of each period
    const Slots slots(groups, [period](std::int64_t g) { return period > 1 && g % period != 0; });
    const Slots all_known(groups, [](std::int64_t) { return true; });
    const Slots& s = period == 9 ? all_known : slots;
    Device device;
    const shim::Launches launches;
    const std::vector<QuantizedPair> cast =
        quantize_groups(device.context, on_device(x), kFirst, casts, options, s.on_device());
    EXPECT_EQ(launches.grids().size(), period == 9 ? 1U : 4U);
    EXPECT_LE(device.arena.peak(), planned.arena.peak());
    for (std::size_t g = 0; g < cast.size(); ++g) {
      const View rows = x.rows(kFirst[g], kFirst[g + 1]);
      EXPECT_EQ(s.known[g].amax.as<float>()[0], g == 3 ? 1e9f : largest_of(rows));
      if (kFirst[g] == kFirst[g + 1]) continue;
      Host host;
      KnownScale alone_known = s.known[g];
      alone_known.amax = {};
      const QuantizedPair alone =
          quantize_both(host.context, rows, casts, {.rule = options.rule, .known = alone_known});
      expect_same(cast[g].last, alone.last);
      expect_same(cast[g].first, alone.first);
    }
  }
}

TEST(GroupsCuda, NeedKnownScalesThatAreEquallyFarApart) {
  const Device device;
  std::vector<KnownScale> known = Slots(6, [](std::int64_t g) { return g != 1; }).on_device();
  const auto casts = [&](const CastPair& pair) {
    return casts_groups(device.context, DType::bf16, kColumns, pair, {.rule = ScaleRule::delayed}, known);
  };
  EXPECT_TRUE(casts({kTensor, kTensor}));
  EXPECT_FALSE(casts({kTensor, {DType::e4m3, Granularity::tensor}})) << "two scales of an amax";
  std::swap(known[2], known[3]);
  EXPECT_FALSE(casts({kTensor, kTensor}));
}

// With one scale for each group, and for each column of each group.
TEST(GroupsCuda, BytesEqualThoseOfSingleMatrices) {
  const std::int64_t rows = kFirst.back(), groups = std::ssize(kFirst) - 1;
  for (const std::int64_t each : {std::int64_t{1}, kColumns})
    for (const DType type : {DType::f32, DType::bf16}) {
      const Matrix x(type, rows, kColumns);
      const Tensor scales(DType::f32, {groups * each}), codes(DType::u8, {rows, kColumns});
      const Tensor alone(DType::u8, {rows, kColumns});
      for (std::int64_t i = 0; i < groups * each; ++i) scales.as<float>()[i] = static_cast<float>(i % 91 + 1) * 64;
      Device device;
      CastCounts counts, expected;
      const shim::Launches launches;
      cast_groups_to_bytes(device.context, on_device(x.view), kFirst, DType::e4m3, on_device(scales.view()),
                           on_device(codes.view()), &counts);
      EXPECT_EQ(launches.grids().size(), 1U);
      Host host;
      cast_groups_to_bytes(host.context, x.view, kFirst, DType::e4m3, scales.view(), alone.view(), &expected);
      EXPECT_EQ(
          std::memcmp(codes.as<std::uint8_t>(), alone.as<std::uint8_t>(), static_cast<std::size_t>(rows * kColumns)),
          0);
      EXPECT_GT(counts.saturated, 0);
      EXPECT_EQ(counts.elements, expected.elements);
      EXPECT_EQ(counts.saturated, expected.saturated);
      EXPECT_EQ(counts.underflowed, expected.underflowed);
    }
}

// Amaxes of groups with rows, and of the columns of each.
TEST(GroupsCuda, AmaxesEqualThoseOfSingleMatrices) {
  const std::vector<std::int64_t> first{0, 1, 10, 138, 571, 580};
  const std::int64_t groups = std::ssize(first) - 1;
  const Matrix matrix = rows_of_groups();
  const View x = matrix.view.columns(0, kColumns);
  for (const Granularity granularity : {Granularity::tensor, Granularity::row}) {
    const std::int64_t each = granularity == Granularity::tensor ? 1 : kColumns;
    const Tensor found(DType::f32, {groups * each}), alone(DType::f32, {each});
    std::fill_n(found.as<float>(), found.view().size(), 1e9f);
    Device device;
    const shim::Launches launches;
    amax_groups(device.context, on_device(x), first, granularity, on_device(found.view()));
    EXPECT_EQ(launches.grids().size(), 2U);
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto at = static_cast<std::size_t>(g);
      Host host;
      amax(host.context, x.rows(first[at], first[at + 1]), granularity, ContractionAxis::first, alone.view());
      EXPECT_TRUE(std::equal(alone.as<float>(), alone.as<float>() + each, found.as<float>() + g * each)) << g;
    }
  }
}

TEST(GroupsCuda, MovedCodesEqualThoseOfASingleMatrix) {
  const std::int64_t rows = kFirst.back(), groups = std::ssize(kFirst) - 1;
  const Tensor codes(DType::u8, {rows, kColumns}), scales(DType::f32, {groups});
  for (std::int64_t i = 0; i < rows * kColumns; ++i)
    codes.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 7 % 125);
  const View bytes = on_device(codes.view()), one = on_device(scales.view());
  for (const bool emulate : {false, true})
    for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first}) {
      Device device;
      const std::vector<Quantized> all =
          from_bytes_groups(device.context, bytes, kFirst, DType::e4m3, contract, one, one, emulate);
      for (std::size_t g = 0; g < all.size(); ++g) {
        const Quantized alone = from_bytes(device.context, bytes.rows(kFirst[g], kFirst[g + 1]), DType::e4m3, contract,
                                           one.rows(0, 1), one.rows(0, 1), emulate);
        ASSERT_EQ(all[g].codes.shape, alone.codes.shape);
        ASSERT_EQ(all[g].scale.data, one.as<float>() + g);
        const std::int64_t lines = alone.codes.shape[contract == ContractionAxis::last ? 0 : 1];
        if (alone.codes.size() == 0) continue;
        const std::int64_t stride = alone.codes.stride[contract == ContractionAxis::last ? 0 : 1];
        ASSERT_EQ(all[g].codes.stride, alone.codes.stride);
        EXPECT_EQ(std::memcmp(all[g].codes.data, alone.codes.data,
                              static_cast<std::size_t>(lines * stride) * dtype::size_of(alone.codes.dtype)),
                  0);
      }
    }
}

TEST(GroupsCuda, MovedCodesHaveTheScalesOfTheirLines) {
  const std::int64_t rows = kFirst.back(), groups = std::ssize(kFirst) - 1;
  const Tensor codes(DType::u8, {rows, kColumns}), scales(DType::f32, {std::max(rows, groups * kColumns)});
  const View bytes = on_device(codes.view()), all_scales = on_device(scales.view());
  for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first}) {
    Device device;
    const bool last = contract == ContractionAxis::last;
    const View lines = all_scales.rows(0, last ? rows : groups * kColumns);
    const std::vector<Quantized> all =
        from_bytes_groups(device.context, bytes, kFirst, DType::e4m3, contract, lines, lines, false);
    for (std::size_t g = 0; g < all.size(); ++g) {
      const std::int64_t first = last ? kFirst[g] : static_cast<std::int64_t>(g) * kColumns;
      EXPECT_EQ(all[g].granularity, Granularity::row);
      EXPECT_EQ(all[g].scale.data, all_scales.as<float>() + first);
      EXPECT_EQ(all[g].inverse_scale.size(), last ? kFirst[g + 1] - kFirst[g] : kColumns);
    }
  }
}

// However rows are divided, and in a dry run.
TEST(GroupsCuda, MemoryDependsOnTheNumbersOfRowsAndGroupsOnly) {
  const Matrix matrix = rows_of_groups();
  const View x = on_device(matrix.view.columns(0, kColumns));
  const std::int64_t rows = kFirst.back();
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Device dry(true);
    (void)quantize_groups(dry.context, x, kFirst, c.casts, {.rule = c.rule}, {});
    for (const std::vector<std::int64_t>& first : {kFirst, {0, 0, 0, 0, rows, rows, rows, rows, rows}}) {
      Device device;
      (void)quantize_groups(device.context, x, first, c.casts, {.rule = c.rule}, {});
      EXPECT_EQ(device.arena.peak(), dry.arena.peak());
    }
  }
}

// More groups than one launch has arguments for.
TEST(GroupsCuda, ManyGroups) {
  constexpr std::int64_t kGroups = 700;
  const Matrix x(DType::bf16, kGroups, 16);
  std::vector<std::int64_t> first(kGroups + 1);
  std::iota(first.begin(), first.end(), 0);
  Device device;
  const std::vector<QuantizedPair> all =
      quantize_groups(device.context, on_device(x.view), first, {kRow, kRow}, {}, {});
  ASSERT_EQ(std::ssize(all), kGroups);
  for (const std::int64_t g : {0, 511, 512, 699}) {
    Host host;
    const QuantizedPair alone = quantize_both(host.context, x.view.rows(g, g + 1), {kRow, kRow}, {});
    expect_same(all[static_cast<std::size_t>(g)].last, alone.last);
    expect_same(all[static_cast<std::size_t>(g)].first, alone.first);
  }
}

}  // namespace
}  // namespace fp8::quant
