// Linears of groups of rows through the CUDA kernels, which run on the host: with the casts of each group, whatever its
// number of rows, the results are those of the host's code, and the memory is at most what a dry run plans.
#include "fp8/linear/groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "cuda_shim.h"
#include "fp8/device/arena.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/fold.h"
#include "fp8/quant/groups.h"
#include "shim_launches.h"

namespace fp8::kernels {
namespace {

using dtype::DType;
using tensor::Tensor;
using tensor::View;

constexpr std::int64_t kIn = 160, kOut = 144;
const std::vector<std::int64_t> kFirst{0, 1, 1, 5, 10, 26, 156, 156};

// Recipes with which backward reads only codes of x, without emulation.
const std::set<std::string_view> kKept{"tensorwise", "rowwise", "current", "delayed", "blockwise"};

// Integers, of which each row has another magnitude.
Tensor integers(DType type, std::int64_t rows, std::int64_t columns, std::int64_t seed) {
  Tensor t(type, {rows, columns});
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const auto value = static_cast<float>((i * i + 7 * i + seed) % (3 + i / columns % 29) - i / columns % 5);
    if (type == DType::f32)
      t.as<float>()[i] = value;
    else
      t.as<dtype::Bf16>()[i] = dtype::to_bf16(value);
  }
  return t;
}

struct Results {
  Tensor y, dx, dw;
};

// Delayed scales of x and of two parts of dy and of the weight, of which those of every second group of rows are not
// known yet. Scales of x, of weights and of dy follow each other, as shard::ScaleNumbers has them.
linear::KnownScales known_of(const View& slots, std::int64_t group, std::int64_t groups) {
  const auto slot = [&](std::int64_t i, bool own_amax) {
    return quant::KnownScale{slots.rows(i, i + 1), slots.rows(i, i + 1), {}, own_amax};
  };
  const std::int64_t w = groups + 2 * group, dy = 3 * groups + 2 * group;
  const bool own = group % 2 == 1;
  return {slot(group, own), {slot(w, false), slot(w + 1, false)}, {slot(dy, own), slot(dy + 1, own)}};
}

// With `keeps` backward reads codes that forward has kept, where it can keep them, after another layer was computed.
Results run(device::DeviceType type, const quant::Recipe& recipe, const std::vector<std::int64_t>& first = kFirst,
            bool keeps = false) {
  const device::Device on(type);
  device::Arena arena(std::size_t{64} << 20, type);
  const device::Context ctx = on.context(arena);
  const auto there = [&](const Tensor& t) { return tensor::to_device(ctx, t.view(), "test"); };
  const std::int64_t m = first.back(), groups = static_cast<std::int64_t>(first.size()) - 1;
  const Tensor of_x = integers(DType::bf16, m, kIn, 1), of_dy = integers(DType::bf16, m, kOut, 2),
               of_w = integers(DType::bf16, groups * kOut, kIn, 3);
  const View x = there(of_x), dy = there(of_dy), w = there(of_w);
  Results r{Tensor(DType::bf16, {m, kOut}), Tensor(DType::bf16, {m, kIn}), Tensor(DType::f32, {groups * kOut, kIn})};
  const View y = there(r.y), dx = there(r.dx), dw = there(r.dw);
  const std::vector<linear::Part> parts{{0, 128, true}, {128, kOut, true}};
  gemm::Engine engine;
  std::vector<linear::GroupWeight> of_groups(static_cast<std::size_t>(groups), {parts});
  Tensor ones(DType::f32, {5 * groups});
  std::fill_n(ones.as<float>(), 5 * groups, 1.0f);
  const View slots = there(ones);
  for (std::int64_t g = 0; g < groups && recipe.scale_rule == quant::ScaleRule::delayed; ++g)
    of_groups[static_cast<std::size_t>(g)].known = known_of(slots, g, groups);
  const auto prepared = [&](linear::Pass pass) {
    return linear::prepare_groups(ctx, w, of_groups, {&recipe, {.power_of_2 = recipe.power_of_2}}, pass);
  };
  const std::vector<linear::Weight> forward = prepared(linear::Pass::forward),
                                    backward = prepared(linear::Pass::backward);
  device::PooledMemory memory(arena);
  linear::GroupInput input{x};
  {
    const device::Scope scope(arena);
    const std::int64_t room = m + 100;
    const View most = tensor::make_view(nullptr, DType::bf16, type, {room, kIn});
    const quant::KeptGroups keep{keeps && linear::keeps_codes(ctx, forward, most) ? &memory : nullptr, room};
    EXPECT_EQ(keep.memory != nullptr, keeps && kKept.contains(recipe.name));
    if (keep.memory != nullptr) {
      input = {{}, linear::forward_groups(ctx, engine, linear::Groups{forward, first}, x, y, keep)};
      linear::forward_groups(ctx, engine, linear::Groups{forward, first}, there(integers(DType::bf16, m, kIn, 4)),
                             there(integers(DType::bf16, m, kOut, 5)), keep);
    } else {
      linear::forward_groups(ctx, engine, linear::Groups{forward, first}, x, y);
    }
  }
  linear::backward_groups(ctx, engine, linear::Groups{backward, first}, input, dy, {dx, dw, {}});
  for (const auto& [to, from] : {std::pair{r.y.view(), y}, {r.dx.view(), dx}, {r.dw.view(), dw}})
    if (to.data != from.data) device::copy_bytes(ctx, to.data, device::DeviceType::host, from.data, type, from.bytes());
  return r;
}

double at(const View& v, std::int64_t i) {
  return static_cast<double>(v.dtype == DType::f32 ? v.as<float>()[i] : dtype::to_float(v.as<dtype::Bf16>()[i]));
}

// Sums in another order, and their rounding to bf16, differ by little; a scale of another group by far more.
void expect_near(const View& got, const View& expected) {
  double largest = 0;
  for (std::int64_t i = 0; i < expected.size(); ++i) largest = std::max(largest, std::fabs(at(expected, i)));
  for (std::int64_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(at(got, i), at(expected, i), std::fabs(at(expected, i)) / 128 + largest * 1e-6) << i;
}

TEST(GroupsOnDevice, EqualTheHosts) {
  for (const quant::Recipe& recipe : quant::recipes()) {
    if (recipe.fp4()) continue;
    SCOPED_TRACE(recipe.name);
    const Results host = run(device::DeviceType::host, recipe), device = run(device::DeviceType::cuda, recipe);
    expect_near(device.y.view(), host.y.view());
    expect_near(device.dx.view(), host.dx.view());
    expect_near(device.dw.view(), host.dw.view());
  }
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.view().data, b.view().data, a.view().bytes()) == 0;
}

TEST(GroupsOnDevice, CodesThatForwardKeepsGiveTheBitsOfX) {
  for (const quant::Recipe& recipe : quant::recipes()) {
    if (recipe.fp4()) continue;
    SCOPED_TRACE(recipe.name);
    const Results read = run(device::DeviceType::cuda, recipe),
                  kept = run(device::DeviceType::cuda, recipe, kFirst, true);
    EXPECT_TRUE(same_bits(kept.y, read.y));
    EXPECT_TRUE(same_bits(kept.dx, read.dx));
    EXPECT_TRUE(same_bits(kept.dw, read.dw));
  }
}

// Casts of activations and of weights, whose scales are not known, or with delayed scaling in part. Blocks of 32 are
// emulated, group by group.
TEST(GroupsOnDevice, HaveLaunchesWhoseNumberDoesNotDependOnTheGroups) {
  for (const char* const name : {"tensorwise", "rowwise", "rowwise_with_gw_hp", "current", "delayed", "blockwise"}) {
    SCOPED_TRACE(name);
    const auto launches = [&](const std::vector<std::int64_t>& first) {
      const shim::Launches all;
      run(device::DeviceType::cuda, quant::find_recipe(name), first);
      return all.grids().size();
    };
    EXPECT_EQ(launches({0, 80, 156}), launches({0, 1, 20, 40, 60, 80, 100, 120, 156}));
  }
}

// Weights of two parts of 128 rows, cast after a gather or as the ranks of a gather cast them, and the launches of the
// casts and of what prepares the weights.
struct Prepared {
  std::vector<linear::Weight> cast, codes;
  std::size_t before = 0, after = 0;
};

Prepared prepare_both(const device::Context& ctx, const quant::Recipe& recipe, std::int64_t groups, linear::Pass pass) {
  constexpr std::int64_t kRows = 128, kColumns = 272;  // three blocks in a row, which take the room of four
  const std::int64_t parts = 2 * groups;
  const linear::LinearPrecision precision{&recipe, {.power_of_2 = recipe.power_of_2}};
  const View w = tensor::to_device(ctx, integers(DType::bf16, parts * kRows, kColumns, 3).view(), "test");
  const std::vector<linear::GroupWeight> weights(static_cast<std::size_t>(groups),
                                                 {{{0, kRows, true}, {kRows, 2 * kRows, true}}});
  const quant::Cast& cast = pass == linear::Pass::backward ? recipe.dgrad.w : recipe.forward.w;
  const auto allocate = [&](DType type, const tensor::Shape& shape) {
    return tensor::allocate(ctx, type, shape, "test");
  };
  const quant::CastOptions options{.power_of_2 = recipe.power_of_2, .rule = recipe.scale_rule};
  std::vector<std::int64_t> first;
  for (std::int64_t g = 0; g <= parts; ++g) first.push_back(g * kRows);
  linear::Codes codes{allocate(DType::u8, {parts * kRows, kColumns}), {}, {}, {}, true};
  Prepared p{linear::prepare_groups(ctx, w, weights, precision, pass), {}};
  const shim::Launches casts;
  if (recipe.casts_squares()) {
    for (View* const v : {&codes.scales, &codes.inverse_scales}) *v = allocate(DType::f32, {parts, 3});
    quant::cast_blocks_to_bytes(ctx, w, options, codes.bytes, codes.scales, codes.inverse_scales);
  } else if (pass == linear::Pass::forward) {
    codes.scales = allocate(DType::f32, {parts * kRows});
    quant::cast_rows_to_bytes(ctx, w, cast.format, options, codes.bytes, codes.scales);
    codes.inverse_scales = quant::reciprocals(ctx, codes.scales);
  } else {
    const bool one = cast.granularity == quant::Granularity::tensor;
    for (View* const v : {&codes.scales, &codes.inverse_scales})
      *v = allocate(DType::f32, {parts * (one ? 1 : kColumns)});
    quant::amax_groups(ctx, w, first, cast.granularity, codes.scales);
    quant::scales_from_amax(ctx, codes.scales, {cast.format, options.rule, options.power_of_2}, codes.scales,
                            codes.inverse_scales);
    quant::cast_groups_to_bytes(ctx, w, first, cast.format, codes.scales, codes.bytes, nullptr);
  }
  p.before = casts.grids().size();
  p.codes = linear::prepare_codes_groups(ctx, codes, weights, precision, pass);
  p.after = casts.grids().size();
  return p;
}

// Bits of a view of a matrix or vector, whatever its strides.
std::vector<double> values_of(const View& v) {
  std::vector<double> all;
  for (std::int64_t r = 0; r < v.shape[0]; ++r)
    for (std::int64_t c = 0; c < (v.rank == 2 ? v.shape[1] : 1); ++c) {
      const std::int64_t i = r * v.stride[0] + c * v.stride[1];
      all.push_back(v.dtype == DType::u8 ? static_cast<double>(v.as<std::uint8_t>()[i]) : at(v, i));
    }
  return all;
}

// Codes of own rows, with the scales of rows, of columns of each part, of parts and of blocks, are those of a cast
// after the gather, in the layout that GEMMs read, and take launches whose number does not depend on the groups.
TEST(GroupsOnDevice, TakeTheCodesOfRanksThatCastTheirRows) {
  for (const char* const name : {"rowwise", "rowwise_with_gw_hp", "blockwise"})
    for (const linear::Pass pass : {linear::Pass::forward, linear::Pass::backward}) {
      SCOPED_TRACE(std::string(name) + (pass == linear::Pass::forward ? ", forward" : ", dgrad"));
      const device::Device on(device::DeviceType::cuda);
      device::Arena arena(std::size_t{64} << 20, device::DeviceType::cuda);
      const device::Context ctx = on.context(arena);
      const quant::Recipe& recipe = quant::find_recipe(name);
      const Prepared two = prepare_both(ctx, recipe, 2, pass), five = prepare_both(ctx, recipe, 5, pass);
      EXPECT_EQ(two.before, five.before);
      EXPECT_EQ(two.after, five.after);
      ASSERT_EQ(five.codes.size(), 5U);
      for (std::size_t g = 0; g < 5; ++g)
        for (std::size_t part = 0; part < 2; ++part) {
          const linear::Operand &found = five.codes[g].operands.at(part), &wanted = five.cast[g].operands.at(part);
          EXPECT_EQ(found.part.begin, wanted.part.begin);
          EXPECT_EQ(found.codes.granularity, wanted.codes.granularity);
          EXPECT_EQ(found.codes.codes.stride, wanted.codes.codes.stride);
          EXPECT_EQ(values_of(found.codes.codes), values_of(wanted.codes.codes));
          EXPECT_EQ(found.codes.scale.stride, wanted.codes.scale.stride);
          EXPECT_EQ(values_of(found.codes.scale), values_of(wanted.codes.scale));
          EXPECT_EQ(values_of(found.codes.inverse_scale), values_of(wanted.codes.inverse_scale));
        }
    }
}

// Bytes of forward and backward on a device with this division into rows.
std::size_t peak(const quant::Recipe& recipe, const std::vector<std::int64_t>& first, bool dry) {
  const device::Device on(device::DeviceType::cuda);
  device::Arena arena = dry ? device::Arena() : device::Arena(std::size_t{64} << 20, device::DeviceType::cuda);
  device::Context ctx = on.context(arena);
  ctx.dry = dry;
  const std::int64_t m = first.back(), groups = static_cast<std::int64_t>(first.size()) - 1;
  const auto zeros = [&](DType type, std::int64_t rows, std::int64_t columns) {
    const View v = tensor::allocate(ctx, type, {rows, columns}, "test");
    if (!dry) ops::zero(ctx, v);
    return v;
  };
  const View x = zeros(DType::bf16, m, kIn), dy = zeros(DType::bf16, m, kOut), w = zeros(DType::bf16, kOut, kIn),
             y = zeros(DType::bf16, m, kOut), dx = zeros(DType::bf16, m, kIn),
             dw = zeros(DType::f32, groups * kOut, kIn);
  const linear::LinearPrecision precision{&recipe, {.power_of_2 = recipe.power_of_2}};
  gemm::Engine engine;
  for (const linear::Pass pass : {linear::Pass::forward, linear::Pass::backward}) {
    const device::Scope scope(arena);
    const std::vector<linear::Weight> weights(
        static_cast<std::size_t>(groups),
        linear::prepare(ctx, w, {}, {{0, 128, true}, {128, kOut, true}}, precision, pass));
    if (pass == linear::Pass::forward)
      linear::forward_groups(ctx, engine, linear::Groups{weights, first}, x, y);
    else
      linear::backward_groups(ctx, engine, linear::Groups{weights, first}, {x}, dy, {dx, dw, {}});
  }
  return arena.peak();
}

// The plan of memory lets two of six experts have all rows; casts of all groups are in memory together.
TEST(GroupsOnDevice, FitTheMemoryThatIsPlanned) {
  for (const char* const name : {"tensorwise", "rowwise"}) {
    const quant::Recipe& recipe = quant::find_recipe(name);
    const std::size_t planned = peak(recipe, {0, 80, 160, 160, 160, 160, 160}, true);
    for (const std::vector<std::int64_t>& first : {std::vector<std::int64_t>{0, 1, 2, 3, 4, 80, 160},
                                                   {0, 33, 50, 67, 84, 117, 160},
                                                   {0, 0, 0, 80, 160, 160, 160}})
      EXPECT_LE(peak(recipe, first, false), planned) << recipe.name;
  }
}

}  // namespace
}  // namespace fp8::kernels
