// The kernels that cast what they compute, on the host, thread by thread: codes with their padding, scales, amaxes and
// counts have the bits of the operation followed by the cast of its result.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cuda.h"
#include "device_cases.h"
#include "elements.h"
#include "shim_launches.h"

namespace fp8::ops {
namespace {

using cases::Layout;
using cases::Matrix;
using quant::Cast;
using quant::CastPair;
using quant::Granularity;

// A context of type CUDA with host memory.
struct Device {
  Device() : arena(std::size_t{1} << 24, device::DeviceType::host) {
    context.device = device::DeviceType::cuda;
    context.arena = &arena;
  }
  device::Arena arena;
  Context context;
};

// A view of host memory as one of the device.
View on_gpu(View v) {
  v.device = device::DeviceType::cuda;
  return v;
}

constexpr Cast kE4m3{DType::e4m3, Granularity::tensor}, kE5m2{DType::e5m2, Granularity::tensor},
    kRow128{DType::e4m3, Granularity::block1x128}, kSquare128{DType::e4m3, Granularity::block128x128};

constexpr CastPair kPairs[] = {{kE4m3, kE4m3},     {kE5m2, {}},   {{}, kE4m3},
                               {kRow128, kRow128}, {kRow128, {}}, {kSquare128, kSquare128}};

struct Size {
  std::int64_t rows, columns;
};
// Whole tiles, parts of tiles, and rows that are not whole groups of 16 bytes.
constexpr Size kSizes[] = {{128, 128}, {1, 16}, {130, 264}, {33, 75}};

// Scale, amax and counts of one cast.
struct Known {
  explicit Known(float scale) : scale_(DType::f32, {1}), inverse(DType::f32, {1}), amax(DType::f32, {1}) {
    *scale_.as<float>() = scale;
    *inverse.as<float>() = 1 / scale;
    *amax.as<float>() = 0.0f;
  }
  quant::CastOptions options(const CastPair& casts, bool power_of_2, bool counted) {
    quant::CastOptions o{.power_of_2 = power_of_2, .counts = counted ? &counts : nullptr};
    const bool whole = casts.last.granularity == Granularity::tensor || casts.first.granularity == Granularity::tensor;
    if (whole) o.known = {on_gpu(scale_.view()), on_gpu(inverse.view()), on_gpu(amax.view())};
    return o;
  }
  Tensor scale_, inverse, amax;
  quant::CastCounts counts;
};

void expect_same_bytes(const View& got, const View& want, const std::string& what) {
  ASSERT_EQ(got.shape, want.shape) << what;
  ASSERT_EQ(got.stride, want.stride) << what;
  if (want.empty()) return;
  const bool by_row = want.rank == 1 || want.stride[1] == 1;
  const std::size_t bytes = want.rank == 1
                                ? want.bytes()
                                : static_cast<std::size_t>(want.shape[by_row ? 0 : 1] * want.stride[by_row ? 0 : 1]) *
                                      dtype::size_of(want.dtype);
  const auto *a = static_cast<const std::uint8_t*>(got.data), *b = static_cast<const std::uint8_t*>(want.data);
  if (want.dtype == DType::u8) {
    ASSERT_EQ(std::memcmp(a, b, bytes), 0) << what;
    return;
  }
  for_each_offset(want, [&](std::int64_t at) {
    ASSERT_EQ(std::memcmp(got.as<float>() + at, want.as<float>() + at, sizeof(float)), 0) << what << " at " << at;
  });
}

void expect_same(const quant::Quantized& got, const quant::Quantized& want, const std::string& what) {
  expect_same_bytes(got.codes, want.codes, what + ", codes");
  expect_same_bytes(got.scale, want.scale, what + ", scales");
  expect_same_bytes(got.inverse_scale, want.inverse_scale, what + ", reciprocals");
}

// Calls write(context, what it writes to), and expects the casts of `values`, bf16, there.
template <class Write>
void expect_cast(const View& values, const CastPair& casts, bool power_of_2, bool counted, const std::string& what,
                 Write write) {
  Device one, other;
  Known wanted(300.0f), found(300.0f);
  const quant::CastOptions options = found.options(casts, power_of_2, counted);
  const quant::QuantizedPair want =
      quant::quantize_both(one.context, on_gpu(values), casts, wanted.options(casts, power_of_2, counted));
  ASSERT_TRUE(quant::can_produce(other.context, casts, options));
  const quant::ProducedCodes to =
      quant::begin_produced(other.context, values.shape[0], values.shape[1], casts, options);
  write(other.context, to);
  if (casts.last.fp8()) expect_same(to.codes.last, want.last, what + ", rows");
  if (casts.first.fp8()) expect_same(to.codes.first, want.first, what + ", columns");
  EXPECT_EQ(*found.amax.as<float>(), *wanted.amax.as<float>()) << what;
  EXPECT_EQ(found.counts.elements, wanted.counts.elements) << what;
  EXPECT_EQ(found.counts.saturated, wanted.counts.saturated) << what;
  EXPECT_EQ(found.counts.underflowed, wanted.counts.underflowed) << what;
}

template <class F>
void for_each_case(F f) {
  for (const Size size : kSizes)
    for (std::size_t p = 0; p < std::size(kPairs); ++p) {
      const Layout layout = p % 2 == 0 ? Layout::contiguous : size.columns == 128 ? Layout::wide : Layout::shifted;
      f(size, kPairs[p], layout, p % 3 == 0,
        std::to_string(size.rows) + " x " + std::to_string(size.columns) + ", casts " + std::to_string(p));
    }
}

TEST(CodesCuda, SwigluEqualsItsCast) {
  for_each_case([](Size s, const CastPair& casts, Layout layout, bool flag, const std::string& what) {
    const Matrix joint(DType::bf16, s.rows, 2 * s.columns, layout, 1, 10);
    const Tensor h(DType::bf16, {s.rows, s.columns});
    Device device;
    cuda::swiglu_forward(device.context, joint.view, h.view(), {});
    expect_cast(h.view(), casts, flag, !flag, what,
                [&](const Context& ctx, const quant::ProducedCodes& to) { swiglu_codes(ctx, on_gpu(joint.view), to); });
  });
}

TEST(CodesCuda, GradientsOfSwigluEqualTheirCasts) {
  for_each_case([](Size s, const CastPair& casts, Layout layout, bool flag, const std::string& what) {
    const Matrix joint(DType::bf16, s.rows, 2 * s.columns, layout, 1, 4), dh(DType::bf16, s.rows, s.columns, layout, 2);
    const Tensor both(DType::bf16, {s.rows, 2 * s.columns});
    Device device;
    cuda::swiglu_backward(device.context, dh.view, joint.view, both.view(), {});
    for (const std::size_t half : {0u, 1u}) {
      const auto first = static_cast<std::int64_t>(half) * s.columns;
      const Tensor values(DType::bf16, {s.rows, s.columns});
      cuda::copy(device.context, both.view().columns(first, first + s.columns), values.view());
      expect_cast(values.view(), casts, flag, false, what, [&](const Context& ctx, const quant::ProducedCodes& to) {
        Known other(7.0f);
        std::array<quant::ProducedCodes, 2> halves;
        halves[half] = to;
        halves[1 - half] = quant::begin_produced(ctx, s.rows, s.columns, casts, other.options(casts, flag, false));
        swiglu_backward_codes(ctx, on_gpu(dh.view), on_gpu(joint.view), halves);
      });
    }
  });
}

// Counts of both gradients go to one place.
TEST(CodesCuda, GradientsOfSwigluAreCounted) {
  const Matrix joint(DType::bf16, 40, 2 * 136, Layout::contiguous, 1, 4),
      dh(DType::bf16, 40, 136, Layout::contiguous, 2);
  const Tensor both(DType::bf16, {40, 2 * 136});
  Device device;
  cuda::swiglu_backward(device.context, dh.view, joint.view, both.view(), {});
  const CastPair casts{kE5m2, kE5m2};
  Known wanted(1e5f), found(1e5f);
  const quant::CastOptions options = found.options(casts, false, true);
  for (const std::int64_t half : {0, 1})
    quant::quantize_both(device.context, on_gpu(both.view().columns(half * 136, half * 136 + 136)), casts,
                         wanted.options(casts, false, true));
  swiglu_backward_codes(device.context, on_gpu(dh.view), on_gpu(joint.view),
                        {quant::begin_produced(device.context, 40, 136, casts, options),
                         quant::begin_produced(device.context, 40, 136, casts, options)});
  EXPECT_EQ(found.counts.elements, wanted.counts.elements);
  EXPECT_GT(wanted.counts.saturated, 0);
  EXPECT_EQ(found.counts.saturated, wanted.counts.saturated);
  EXPECT_EQ(found.counts.underflowed, wanted.counts.underflowed);
  EXPECT_EQ(*found.amax.as<float>(), *wanted.amax.as<float>());
}

// The norm writes no values before: with an addition or alone, its sum and rstd are those of a norm that does.
TEST(CodesCuda, NormsEqualTheirCasts) {
  for_each_case([](Size s, const CastPair& casts, Layout layout, bool flag, const std::string& what) {
    const Matrix x(DType::bf16, s.rows, s.columns, layout, 1, 10), delta(DType::bf16, s.rows, s.columns, layout, 2);
    const Tensor w = make(DType::bf16, {s.columns}, random_values(s.columns, 3)), sum(DType::bf16, {s.rows, s.columns}),
                 y(DType::bf16, {s.rows, s.columns}), rstd(DType::f32, {s.rows}),
                 other_sum(DType::bf16, {s.rows, s.columns}), other_rstd(DType::f32, {s.rows});
    Device device;
    AddNorm norm{x.view, delta.view, w.view(), 1e-5f, sum.view(), y.view(), rstd.view()};
    if (flag) norm.delta = {}, norm.sum = x.view;
    cuda::norm_forward(device.context, "norm", norm);
    norm.y = {};
    norm.rstd = other_rstd.view();
    if (!flag) norm.sum = other_sum.view();
    cuda::norm_forward(device.context, "norm", norm);
    expect_same_bytes(other_rstd.view(), rstd.view(), what);
    expect_cast(y.view(), casts, flag, !flag, what, [&](const Context& ctx, const quant::ProducedCodes& to) {
      rmsnorm_codes(ctx, on_gpu(norm.sum), on_gpu(w.view()), on_gpu(other_rstd.view()), to);
    });
  });
}

// The scale follows from the amax that the norm records without values.
TEST(CodesCuda, ANormWithoutValuesRecordsTheirAmax) {
  const Matrix x(DType::bf16, 40, 264, Layout::contiguous, 1, 10);
  const Tensor w = make(DType::bf16, {264}, random_values(264, 3)), y(DType::bf16, {40, 264}), rstd(DType::f32, {40}),
               amax = make(DType::f32, {1}, {0});
  Device device;
  cuda::norm_forward(device.context, "norm", {x.view, {}, w.view(), 1e-5f, x.view, y.view(), rstd.view()});
  cuda::norm_forward(device.context, "norm",
                     {x.view, {}, w.view(), 1e-5f, x.view, {}, rstd.view(), {amax.view(), false}});
  for (const CastPair& casts : {CastPair{kE4m3, kE4m3}, CastPair{kE4m3, {}}}) {
    const quant::QuantizedPair want = quant::quantize_both(device.context, on_gpu(y.view()), casts, {});
    const quant::CastOptions options{.amax = on_gpu(amax.view())};
    ASSERT_TRUE(quant::can_produce(device.context, casts, options));
    const quant::ProducedCodes to = quant::begin_produced(device.context, 40, 264, casts, options);
    rmsnorm_codes(device.context, on_gpu(x.view), on_gpu(w.view()), on_gpu(rstd.view()), to);
    expect_same(to.codes.last, want.last, "rows");
    if (casts.first.fp8()) expect_same(to.codes.first, want.first, "columns");
  }
}

// Logits with targets, of which the last of several rows is ignored, and memory for what a loss finds.
struct Loss {
  static constexpr float kScale = 0.5f;
  Loss(Size s, Layout layout)
      : logits(DType::bf16, s.rows, s.columns, layout, 1, 8),
        targets(DType::i32, {s.rows}),
        losses(DType::f32, {s.rows}),
        largest(DType::f32, {s.rows}),
        inverse(DType::f32, {s.rows}) {
    for (std::int64_t i = 0; i < s.rows; ++i)
      targets.as<std::int32_t>()[i] =
          i > 0 && i + 1 == s.rows ? kIgnoredTarget : static_cast<std::int32_t>(s.columns - 1 - i * 7 % s.columns);
  }
  void find(const Amax& amax = {}) const {
    cross_entropy_rows(device.context, on_gpu(logits.view), on_gpu(targets.view()), on_gpu(losses.view()), kScale,
                       {on_gpu(largest.view()), on_gpu(inverse.view()), amax});
  }
  void write(const Context& ctx, const quant::ProducedCodes& to) const {
    cross_entropy_codes(ctx, on_gpu(logits.view), on_gpu(targets.view()), kScale,
                        {on_gpu(largest.view()), on_gpu(inverse.view())}, to);
  }
  Device device;
  Matrix logits;
  Tensor targets, losses, largest, inverse;
};

// The kernel that stores the gradient has the same functions of an element, and takes long on the host.
TEST(CodesCuda, GradientsOfLogitsEqualTheirCasts) {
  for_each_case([](Size s, const CastPair& casts, Layout layout, bool flag, const std::string& what) {
    const Loss loss(s, layout);
    const Tensor gradient(DType::bf16, {s.rows, s.columns});
    for (std::int64_t i = 0; i < s.rows; ++i) {
      const std::int64_t target = loss.targets.as<std::int32_t>()[i];
      // In every second row what is past the end would underflow, and be counted.
      const float shift = loss.largest.as<float>()[i] = i % 2 == 0 ? 30.0f : 9.0f - static_cast<float>(i % 5),
                  inverse = loss.inverse.as<float>()[i] = 1.0f / static_cast<float>(i % 7 + 3);
      for (std::int64_t c = 0; c < s.columns; ++c) {
        const Bf16 x = loss.logits.view.as<Bf16>()[i * loss.logits.view.stride[0] + c];
        gradient.as<Bf16>()[i * s.columns + c] =
            target == kIgnoredTarget ? Bf16{}
            : c == target            ? target_gradient<Bf16>(dtype::to_float(x) - shift, inverse, Loss::kScale)
                                     : logit_gradient(x, shift, inverse * Loss::kScale);
      }
    }
    expect_cast(gradient.view(), casts, flag, !flag, what,
                [&](const Context& ctx, const quant::ProducedCodes& to) { loss.write(ctx, to); });
  });
}

// Losses are those of the kernel that stores the gradient, and the scale follows from the amax that is recorded.
TEST(CodesCuda, ALossFindsWhatItsGradientNeeds) {
  const CastPair casts{kE5m2, kE5m2};
  for (const Size s : {Size{12, 264}, Size{9, 75}, Size{1, 16}}) {
    const Loss loss(s, Layout::contiguous), stored(s, Layout::contiguous);
    const Context& ctx = loss.device.context;
    const Tensor amax = make(DType::f32, {1}, {0});
    loss.find({on_gpu(amax.view()), false});
    cuda::cross_entropy(ctx, stored.logits.view, stored.targets.view(), stored.losses.view(), Loss::kScale, true);
    expect_same_bytes(loss.losses.view(), stored.losses.view(), "losses");
    const quant::QuantizedPair want = quant::quantize_both(ctx, on_gpu(stored.logits.view), casts, {});
    const quant::ProducedCodes to = quant::begin_produced(ctx, s.rows, s.columns, casts, {.amax = on_gpu(amax.view())});
    loss.write(ctx, to);
    expect_same(to.codes.last, want.last, "rows");
    expect_same(to.codes.first, want.first, "columns");
  }
}

// As in a stored gradient, so that the step is detected as non-finite.
TEST(CodesCuda, ATargetOutsideOfTheVocabularyGivesNanInItsRow) {
  const Loss loss({3, 16}, Layout::contiguous);
  loss.targets.as<std::int32_t>()[1] = 16;
  Known known(1.0f);
  const quant::ProducedCodes to =
      quant::begin_produced(loss.device.context, 3, 16, {kE4m3, {}}, known.options({kE4m3, {}}, false, false));
  loss.find();
  loss.write(loss.device.context, to);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::isnan(loss.losses.as<float>()[i]), i == 1);
    for (std::int64_t c = 0; c < 16; ++c)
      EXPECT_EQ((to.codes.last.codes.as<std::uint8_t>()[i * to.codes.last.codes.stride[0] + c] & 0x7F) == 0x7F, i == 1);
  }
}

// No row; one; parts of tiles; a whole tile; a group behind the end.
const std::vector<std::int64_t> kFirst{0, 0, 1, 34, 162, 300, 300};
constexpr std::int64_t kGroupColumns = 144;

// Scales of groups, two floats apart, each with an amax, and counts of all.
struct KnownGroups {
  explicit KnownGroups(float largest) : scale(DType::f32, {12}), inverse(DType::f32, {12}), amax(DType::f32, {12}) {
    for (std::int64_t g = 0; g < 6; ++g) {
      scale.as<float>()[2 * g] = largest / static_cast<float>(g + 1);
      inverse.as<float>()[2 * g] = static_cast<float>(g + 1) / largest;
    }
    std::fill_n(amax.as<float>(), 12, 0.0f);
  }
  std::vector<quant::KnownScale> of(const CastPair& casts) const {
    std::vector<quant::KnownScale> all;
    const bool whole = casts.last.granularity == Granularity::tensor || casts.first.granularity == Granularity::tensor;
    const auto slot = [](const Tensor& t, std::int64_t g) { return on_gpu(t.view().rows(2 * g, 2 * g + 1)); };
    for (std::int64_t g = 0; g < 6 && whole; ++g) all.push_back({slot(scale, g), slot(inverse, g), slot(amax, g)});
    return all;
  }
  Tensor scale, inverse, amax;
  quant::CastCounts counts;
};

// The casts of stored matrices of groups, and codes that `write(context, what it writes to)` writes in place of them,
// of one matrix or of two.
template <class Write>
void expect_groups(std::span<const View> values, const CastPair& casts, bool keeps, Write write) {
  Device one, other;
  device::PooledMemory of_one(one.arena), of_other(other.arena);
  KnownGroups wanted[] = {KnownGroups(300), KnownGroups(900)}, found[] = {KnownGroups(300), KnownGroups(900)};
  const std::int64_t rows = kFirst.back() + 40;
  std::vector<std::vector<quant::QuantizedPair>> want;
  std::vector<quant::ProducedGroups> to;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto cast = [&](KnownGroups& k, KnownGroups& counted) {
      return std::pair{quant::CastOptions{.power_of_2 = keeps, .counts = &counted.counts}, k.of(casts)};
    };
    const auto [options, known] = cast(wanted[i], wanted[0]);
    want.push_back(quant::quantize_groups(one.context, on_gpu(values[i]), kFirst, casts, options, known,
                                          {keeps ? &of_one : nullptr, rows}));
    const auto [own_options, own_known] = cast(found[i], found[0]);
    ASSERT_TRUE(quant::can_produce_groups(other.context, kGroupColumns, 6, casts, own_options, own_known));
    const View shape =
        tensor::make_view(nullptr, DType::bf16, device::DeviceType::cuda, {values[i].shape[0], values[i].shape[1]});
    to.push_back(quant::begin_produced_groups(other.context, shape, kFirst, casts, own_options, own_known,
                                              {keeps ? &of_other : nullptr, rows}));
  }
  EXPECT_EQ(other.arena.peak(), one.arena.peak());
  const shim::Launches launches;
  write(other.context, to);
  EXPECT_EQ(launches.grids().size(), 1U);
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t g = 0; g < want[i].size(); ++g) {
      const std::string what = "matrix " + std::to_string(i) + ", group " + std::to_string(g);
      if (casts.last.fp8()) expect_same(to[i].codes[g].last, want[i][g].last, what + ", rows");
      if (casts.first.fp8()) expect_same(to[i].codes[g].first, want[i][g].first, what + ", columns");
    }
    EXPECT_EQ(std::memcmp(found[i].amax.as<float>(), wanted[i].amax.as<float>(), 12 * sizeof(float)), 0);
  }
  EXPECT_GT(found[0].counts.elements, 0);
  EXPECT_EQ(found[0].counts.elements, wanted[0].counts.elements);
  EXPECT_EQ(found[0].counts.saturated, wanted[0].counts.saturated);
  EXPECT_EQ(found[0].counts.underflowed, wanted[0].counts.underflowed);
}

TEST(CodesCuda, SwigluOfGroupsEqualsItsCasts) {
  const std::int64_t m = kFirst.back();
  const Matrix joint(DType::bf16, m, 2 * kGroupColumns, Layout::wide, 1, 10);
  const Tensor h(DType::bf16, {m, kGroupColumns});
  Device device;
  cuda::swiglu_forward(device.context, joint.view, h.view(), {});
  const View values = h.view();
  for (const CastPair& casts : kPairs)
    for (const bool keeps : {false, true}) {
      if (keeps && (!casts.last.fp8() || !casts.first.fp8())) continue;
      expect_groups({&values, 1}, casts, keeps, [&](const Context& ctx, std::span<const quant::ProducedGroups> to) {
        swiglu_codes(ctx, on_gpu(joint.view), to[0]);
      });
    }
}

TEST(CodesCuda, GradientsOfSwigluOfGroupsEqualTheirCasts) {
  const std::int64_t m = kFirst.back(), f = kGroupColumns;
  const Matrix joint(DType::bf16, m, 2 * f, Layout::wide, 1, 4), dh(DType::bf16, m, f, Layout::contiguous, 2);
  const Tensor both(DType::bf16, {m, 2 * f});
  Device device;
  cuda::swiglu_backward(device.context, dh.view, joint.view, both.view(), {});
  const std::array<View, 2> values{both.view().columns(0, f), both.view().columns(f, 2 * f)};
  for (const CastPair& casts : kPairs)
    expect_groups(values, casts, false, [&](const Context& ctx, std::span<const quant::ProducedGroups> to) {
      swiglu_backward_codes(ctx, on_gpu(dh.view), on_gpu(joint.view), {to[0], to[1]});
    });
}

TEST(CodesCuda, WhatAnOperationCanWrite) {
  Device device;
  Known known(1.0f);
  const auto can = [&](const CastPair& casts, const quant::CastOptions& options) {
    return quant::can_produce(device.context, casts, options);
  };
  const quant::CastOptions scale = known.options({kE4m3, kE4m3}, false, false);
  quant::CastOptions own = scale, emulated = scale;
  own.known.own_amax = true;
  emulated.emulate = true;
  EXPECT_TRUE(can({kE4m3, kE4m3}, scale));
  EXPECT_FALSE(can({kE4m3, kE4m3}, {}));
  EXPECT_FALSE(can({kE4m3, kE5m2}, scale));
  EXPECT_FALSE(can({kE4m3, kE4m3}, own));
  EXPECT_FALSE(can({kE4m3, kE4m3}, emulated));
  EXPECT_FALSE(can({{}, {}}, scale));
  EXPECT_TRUE(can({kRow128, {}}, {}));
  EXPECT_FALSE(can({{DType::e4m3, Granularity::row}, {}}, scale));
  EXPECT_FALSE(quant::can_produce(Host(), {kE4m3, kE4m3}, scale));
}

TEST(CodesCuda, WhatAnOperationCanWriteOfGroups) {
  Device device;
  const CastPair tensor{kE4m3, kE4m3};
  const KnownGroups groups(1);
  const auto can = [&](const CastPair& casts, const std::vector<quant::KnownScale>& known, std::int64_t count = 6,
                       bool emulate = false) {
    return quant::can_produce_groups(device.context, kGroupColumns, count, casts, {.emulate = emulate}, known);
  };
  std::vector<quant::KnownScale> one_unknown = groups.of(tensor);
  one_unknown[4].own_amax = true;
  EXPECT_TRUE(can(tensor, groups.of(tensor)));
  EXPECT_FALSE(can(tensor, {}));
  EXPECT_FALSE(can(tensor, one_unknown));
  EXPECT_FALSE(can({kE4m3, kE5m2}, groups.of(tensor)));
  EXPECT_FALSE(can(tensor, groups.of(tensor), 6, true));
  EXPECT_TRUE(can({kRow128, {}}, {}, 512));
  EXPECT_FALSE(can({kRow128, {}}, {}, 513)) << "two launches";
  EXPECT_FALSE(can({{DType::e4m3, Granularity::row}, {}}, {}));
  EXPECT_FALSE(can({{}, {}}, {}));
}

}  // namespace
}  // namespace fp8::ops
