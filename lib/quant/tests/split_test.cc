// Casts of parts of a matrix that ranks share: the codes and scales of every recipe's casts have the bits of a cast of
// the whole, with one reduction where an amax covers several ranks and none elsewhere; on the host, and by the kernels.
#include <gtest/gtest.h>
#include <omp.h>

#include <memory>

#include "codes.h"
#include "cuda.h"
#include "fp8/quant/fold.h"
#include "fp8_ranks.h"
#include "long.h"

namespace fp8::quant {
namespace {

using dtype::Bf16;
using dtype::DType;
using tensor::Tensor;
using test::RanksInTurn;

constexpr Cast kTensor{DType::e4m3, Granularity::tensor}, kRow{DType::e4m3, Granularity::row},
    kSquare{DType::e4m3, Granularity::block128x128}, kBlock128{DType::e4m3, Granularity::block1x128},
    kBlock32{DType::e4m3, Granularity::block1x32};

// A cast of a recipe, with its rule.
struct RecipeCast {
  Cast cast;
  ScaleRule rule;
  bool power_of_2;
};

std::vector<RecipeCast> casts() {
  std::vector<RecipeCast> all;
  for (const Recipe& r : recipes())
    for (const Cast& cast : {r.forward.x, r.forward.w, r.dgrad.dy, r.dgrad.w, r.wgrad.dy, r.wgrad.x})
      if (cast.fp8() && !is_fp4(cast.format) && std::ranges::none_of(all, [&](const RecipeCast& c) {
            return c.cast == cast && c.rule == r.scale_rule && c.power_of_2 == r.power_of_2;
          }))
        all.push_back({cast, r.scale_rule, r.power_of_2});
  return all;
}

bool has_blocks(const Cast& cast) { return block_extent(cast.granularity).along > 0; }

// The scale of an element, whose index in the whole is larger by `begin` along `axis` if blocks are of the whole.
float scale_of(const Quantized& q, const View& scales, std::int64_t r, std::int64_t c, std::int64_t r_whole,
               std::int64_t c_whole, bool blocks_of_whole) {
  const bool last = q.contract == ContractionAxis::last;
  if (q.granularity == Granularity::tensor) return *scales.as<float>();
  if (q.granularity == Granularity::row) return scales.as<float>()[last ? r : c];
  const BlockExtent block = block_extent(q.granularity);
  return element(scales, (blocks_of_whole ? r_whole : r) / (last ? block.across : block.along),
                 (blocks_of_whole ? c_whole : c) / (last ? block.along : block.across));
}

// A matrix whose rows or columns are on ranks; bounds[r] is the first of rank r.
struct Shared {
  const Matrix& x;
  int axis;
  std::vector<std::int64_t> bounds;

  int ranks() const { return static_cast<int>(bounds.size()) - 1; }
  std::int64_t begin(int rank) const { return bounds[static_cast<std::size_t>(rank)]; }
  View part(int rank) const {
    return axis == 0 ? x.view.rows(begin(rank), begin(rank + 1)) : x.view.columns(begin(rank), begin(rank + 1));
  }
  // Expects the elements of a part to have the codes and scales of the whole.
  void expect_part(const Quantized& part, const Quantized& whole, int rank, bool blocks_of_whole) const {
    ASSERT_EQ(part.codes.shape, this->part(rank).shape);
    ASSERT_EQ(part.folded, whole.folded);
    ASSERT_EQ(part.contract, whole.contract);
    const std::int64_t down = axis == 0 ? begin(rank) : 0, across = axis == 1 ? begin(rank) : 0;
    for (std::int64_t r = 0; r < part.codes.shape[0]; ++r)
      for (std::int64_t c = 0; c < part.codes.shape[1]; ++c) {
        const std::int64_t i = r + down, j = c + across;
        ASSERT_TRUE(same(element(part.codes, r, c), element(whole.codes, i, j))) << i << ' ' << j;
        ASSERT_TRUE(same(scale_of(part, part.scale, r, c, i, j, blocks_of_whole),
                         scale_of(whole, whole.scale, i, j, i, j, true)))
            << i << ' ' << j;
        ASSERT_TRUE(same(scale_of(part, part.inverse_scale, r, c, i, j, blocks_of_whole),
                         scale_of(whole, whole.inverse_scale, i, j, i, j, true)))
            << i << ' ' << j;
      }
  }
};

// The casts of all parts. `cast` gets a rank, its context and its options.
struct Parts {
  template <class CastOf>
  Parts(const Shared& shared, const CastOptions& options, bool straddles, CastOf&& cast)
      : hosts(static_cast<std::size_t>(shared.ranks())), of(hosts.size()), counts(hosts.size()) {
    ranks.run(shared.ranks(), [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      hosts[r] = std::make_unique<Host>();
      counts[r] = {};
      CastOptions of_part = options;
      of_part.counts = &counts[r];
      of_part.split = {&ranks, shared.axis, shared.begin(rank), shared.bounds.back(), straddles};
      of[r] = cast(rank, hosts[r]->context, of_part);
    });
  }
  RanksInTurn ranks;
  std::vector<std::unique_ptr<Host>> hosts;
  std::vector<QuantizedPair> of;
  std::vector<CastCounts> counts;
};

// Whether amaxes cover several ranks that share `axis`, if blocks may.
bool covers(const Cast& cast, ContractionAxis contract, int axis) {
  const bool contracted = (contract == ContractionAxis::last) == (axis == 1);
  return cast.granularity == Granularity::tensor || cast.granularity == Granularity::block128x128 || contracted;
}

// Expects the counts of the ranks to add up to those of the whole.
void expect_counts(const Parts& parts, const CastCounts& whole) {
  CastCounts sum;
  for (const CastCounts& c : parts.counts) sum += c;
  EXPECT_EQ(sum.elements, whole.elements);
  EXPECT_EQ(sum.saturated, whole.saturated);
  EXPECT_EQ(sum.underflowed, whole.underflowed);
}

// Checks the casts of all parts against one of the whole.
void check(const Shared& shared, const Cast& cast, ContractionAxis contract, CastOptions options, bool straddles) {
  const bool covered = covers(cast, contract, shared.axis) && (straddles || !has_blocks(cast));
  Host host;
  CastCounts expected;
  const Parts parts(shared, options, straddles, [&](int rank, const Context& ctx, const CastOptions& of_part) {
    return QuantizedPair{quantize(ctx, shared.part(rank), cast, contract, of_part), {}};
  });
  options.counts = &expected;
  const Quantized whole = quantize(host.context, shared.x.view, cast, contract, options);
  for (int r = 0; r < shared.ranks(); ++r)
    shared.expect_part(parts.of[static_cast<std::size_t>(r)].last, whole, r, covered && straddles);
  EXPECT_EQ(parts.ranks.calls(), covered ? 1u : 0u);
  expect_counts(parts, expected);
}

class SplitCast : public ::testing::TestWithParam<std::tuple<DType, Layout>> {
 public:
  // Each layout with one type, unless long cases run too.
  void SetUp() override {
    const auto& [type, layout] = GetParam();
    if ((type == DType::f32) != (layout == Layout::strided_rows)) FP8_LONG_TEST();
  }
  // Calls f(cast, contract, axis) for every cast of the recipes.
  template <class F>
  static void for_each_cast(F&& f) {
    for (const RecipeCast& c : casts())
      for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first})
        for (const int axis : {0, 1}) {
          SCOPED_TRACE("granularity " + std::to_string(static_cast<int>(c.cast.granularity)) + ", contracting " +
                       (contract == ContractionAxis::last ? "last" : "first") + ", split along " +
                       std::to_string(axis));
          f(c, contract, axis);
        }
  }
  static Matrix matrix(std::int64_t rows, std::int64_t cols) {
    return Matrix(std::get<DType>(GetParam()), rows, cols, std::get<Layout>(GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(All, SplitCast,
                         ::testing::Combine(::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values(Layout::contiguous, Layout::strided_rows,
                                                              Layout::columns_first)));

// 1 to 4 ranks with odd extents, of which one has no elements; blocks straddle ranks.
TEST_P(SplitCast, EqualsTheWhole) {
  const Matrix x = matrix(141, 271);
  for_each_cast([&](const RecipeCast& c, ContractionAxis contract, int axis) {
    const std::int64_t n = axis == 0 ? 141 : 271;
    for (const std::vector<std::int64_t>& bounds :
         {std::vector<std::int64_t>{0, n}, {0, n / 2 + 3, n}, {0, 1, n - 37, n}, {0, 45, 45, 135, n}})
      check({x, axis, bounds}, c.cast, contract, {.power_of_2 = c.power_of_2, .fold = true, .rule = c.rule},
            has_blocks(c.cast));
  });
}

// Parts that begin with a block need no reduction, and have block scales of their own.
TEST_P(SplitCast, WholeBlocksNeedNoReduction) {
  const Matrix x = matrix(270, 300);
  for_each_cast([&](const RecipeCast& c, ContractionAxis contract, int axis) {
    const std::int64_t n = axis == 0 ? 270 : 300;
    if (has_blocks(c.cast))
      for (const bool fold : {false, true})
        check({x, axis, {0, 128, 256, n}}, c.cast, contract, {.power_of_2 = c.power_of_2, .fold = fold}, false);
  });
}

// A NaN or infinity on one rank has the effect on the others that it has in the whole.
TEST_P(SplitCast, NonFiniteElements) {
  for (const float value : {kNan, -kNan, kInf}) {
    Matrix x = matrix(141, 150);
    x.set(2, 3, value);
    x.set(140, 149, value);
    for_each_cast([&](const RecipeCast& c, ContractionAxis contract, int axis) {
      const CastOptions options{.power_of_2 = c.power_of_2, .fold = true, .rule = c.rule};
      Host host;
      // A cast of the whole that does not fold has other codes.
      if (has_blocks(c.cast) && !quantize(host.context, x.view, c.cast, contract, options).folded) return;
      check({x, axis, {0, 50, axis == 0 ? 141 : 150}}, c.cast, contract, options, has_blocks(c.cast));
    });
  }
}

// The scales of blocks of 32 with a NaN, which a cast of the whole does not fold.
TEST_P(SplitCast, NanSpoilsItsBlocksOnAllRanks) {
  Matrix x = matrix(4, 96);
  x.set(1, 40, kNan);
  const Shared shared{x, 1, {0, 48, 96}};
  const Parts parts(
      shared, {.power_of_2 = true, .fold = true}, true, [&](int rank, const Context& ctx, const CastOptions& options) {
        return QuantizedPair{quantize(ctx, shared.part(rank), kBlock32, ContractionAxis::last, options), {}};
      });
  for (const QuantizedPair& part : parts.of)
    for (std::int64_t r = 0; r < 4; ++r)
      for (std::int64_t b = 0; b < 3; ++b)
        EXPECT_EQ(std::isnan(element(part.last.scale, r, b)), r == 1 && b == 1) << r << ' ' << b;
  EXPECT_TRUE(std::isnan(element(parts.of[1].last.codes, 1, 0)));
  EXPECT_FALSE(std::isnan(element(parts.of[1].last.codes, 1, 16)));
}

TEST_P(SplitCast, IsIndependentOfThreads) {
  const Matrix x = matrix(300, 331);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(5);
  for (const Cast& cast : {kSquare, kBlock128, kBlock32})
    for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first})
      check({x, 1, {0, 100, 331}}, cast, contract, {.power_of_2 = true, .fold = true}, true);
  omp_set_num_threads(threads);
}

TEST_P(SplitCast, DryRunAllocatesTheSameMemory) {
  const Matrix x = matrix(141, 150);
  for_each_cast([&](const RecipeCast& c, ContractionAxis contract, int axis) {
    if (contract != ContractionAxis::last) return;  // each run casts for both
    const Shared shared{x, axis, {0, 50, axis == 0 ? 141 : 150}};
    std::size_t dry = 0;
    const Parts parts(shared, {.power_of_2 = true, .fold = true, .rule = c.rule}, true,
                      [&](int rank, const Context& ctx, const CastOptions& options) {
                        Host planned;
                        planned.context.dry = true;
                        quantize_both(planned.context, shared.part(rank), {c.cast, c.cast}, options);
                        dry = planned.context.arena->peak();
                        return quantize_both(ctx, shared.part(rank), {c.cast, c.cast}, options);
                      });
    EXPECT_EQ(parts.hosts.back()->context.arena->peak(), dry);
  });
}

// Casts for two GEMMs take one reduction of the tensor's amax, and one of the amaxes along the ranks' dimension.
TEST(SplitCasts, OfBothGemms) {
  const Matrix x(DType::bf16, 141, 271);
  for (const int axis : {0, 1})
    for (const auto& [casts, reductions] : {std::pair{CastPair{kTensor, kTensor}, 1u},
                                            {CastPair{kRow, kRow}, 1u},
                                            {CastPair{kRow, kTensor}, 1u + axis},
                                            {CastPair{kSquare, kSquare}, 1u},
                                            {CastPair{kBlock128, kBlock128}, 1u},
                                            {CastPair{{}, kRow}, 1u - axis}}) {
      const Shared shared{x, axis, {0, 45, axis == 0 ? 141 : 271}};
      const CastOptions options{.power_of_2 = true, .fold = true};
      const Parts parts(shared, options, true, [&](int rank, const Context& ctx, const CastOptions& of_part) {
        return quantize_both(ctx, shared.part(rank), casts, of_part);
      });
      EXPECT_EQ(parts.ranks.calls(), reductions);
      Host host;
      const QuantizedPair whole = quantize_both(host.context, x.view, casts, options);
      for (int r = 0; r < 2; ++r) {
        const QuantizedPair& part = parts.of[static_cast<std::size_t>(r)];
        if (casts.last.fp8())
          shared.expect_part(part.last, whole.last, r, covers(casts.last, ContractionAxis::last, axis));
        shared.expect_part(part.first, whole.first, r, covers(casts.first, ContractionAxis::first, axis));
      }
    }
}

// What is known of the whole is used as it is.
TEST(SplitCasts, KnownScalesAndAmaxesAreNotReduced) {
  const Matrix x(DType::bf16, 40, 50);
  const Tensor number(DType::f32, {3});
  const View v = number.view();
  for (int i = 0; i < 3; ++i) v.as<float>()[i] = i == 1 ? 0.5f : 2.0f;
  const Shared shared{x, 1, {0, 20, 50}};
  for (const CastOptions& options :
       {CastOptions{.known = {v.rows(0, 1), v.rows(1, 2), {}}}, CastOptions{.amax = v.rows(2, 3)}}) {
    const Parts parts(shared, options, false, [&](int rank, const Context& ctx, const CastOptions& of_part) {
      return quantize_both(ctx, shared.part(rank), {kTensor, kTensor}, of_part);
    });
    EXPECT_EQ(parts.ranks.calls(), 0u);
    for (const QuantizedPair& part : parts.of)
      EXPECT_EQ(*part.last.scale.as<float>(), options.amax.empty() ? 2.0f : 224.0f);
  }
  // The scale of the own amax is not known; the amax that is recorded is of the whole.
  Tensor recorded(DType::f32, {2});
  const Parts parts(shared, {.rule = ScaleRule::delayed}, false,
                    [&](int rank, const Context& ctx, const CastOptions& of_part) {
                      CastOptions own = of_part;
                      own.known = {v.rows(0, 1), v.rows(1, 2), recorded.view().rows(rank, rank + 1), true};
                      return quantize_both(ctx, shared.part(rank), {kTensor, kTensor}, own);
                    });
  EXPECT_EQ(parts.ranks.calls(), 1u);
  Host host;
  const Quantized whole = quantize(host.context, x.view, kTensor, ContractionAxis::last, {.rule = ScaleRule::current});
  for (int r = 0; r < 2; ++r) shared.expect_part(parts.of[static_cast<std::size_t>(r)].last, whole, r, false);
  EXPECT_EQ(recorded.as<float>()[0], recorded.as<float>()[1]);
}

TEST(SplitCasts, RowsToBytes) {
  const Matrix x(DType::bf16, 40, 75);
  for (const bool kernels : {false, true})
    for (const int axis : {0, 1}) {
      const Shared shared{x, axis, {0, 13, axis == 0 ? 40 : 75}};
      Host host;
      const Quantized whole = quantize(host.context, x.view, kRow, ContractionAxis::last, {.power_of_2 = true});
      const Parts parts(shared, {.power_of_2 = true}, false, [&](int rank, Context ctx, const CastOptions& options) {
        const View part = shared.part(rank);
        const View codes = tensor::allocate(ctx, DType::u8, {part.shape[0], part.shape[1]}, "test"),
                   scales = tensor::allocate(ctx, DType::f32, {part.shape[0]}, "test");
        if (kernels)
          cuda::cast_rows_to_bytes(ctx, part, DType::e4m3, options, codes, scales);
        else
          cast_rows_to_bytes(ctx, part, DType::e4m3, options, codes, scales);
        return QuantizedPair{
            from_bytes(ctx, codes, DType::e4m3, ContractionAxis::last, scales, reciprocals(ctx, scales)), {}};
      });
      EXPECT_EQ(parts.ranks.calls(), axis == 1 ? 1u : 0u);
      for (int r = 0; r < 2; ++r) shared.expect_part(parts.of[static_cast<std::size_t>(r)].last, whole, r, false);
    }
}

// The kernels, with the reduction between those for amaxes and those for scales.
TEST(SplitCasts, Kernels) {
  const Matrix x(DType::bf16, 141, 271);
  for (const int axis : {0, 1})
    for (const CastPair& casts : {CastPair{kTensor, kTensor}, CastPair{kRow, kRow}, CastPair{kRow, {}},
                                  CastPair{{}, kRow}, CastPair{kRow, kTensor}}) {
      const Shared shared{x, axis, {0, 45, axis == 0 ? 141 : 271}};
      const CastOptions options{.power_of_2 = true};
      const auto parts_by = [&](auto&& cast) { return std::make_unique<Parts>(shared, options, false, cast); };
      const auto on_host = parts_by([&](int rank, const Context& ctx, const CastOptions& of_part) {
        return quantize_both(ctx, shared.part(rank), casts, of_part);
      });
      const auto by_kernels = parts_by([&](int rank, Context ctx, const CastOptions& of_part) {
        ctx.device = device::DeviceType::cuda;  // of host memory
        CastOptions with_amax = of_part;
        if (casts.last == kTensor || casts.first == kTensor) {
          with_amax.amax = tensor::allocate(ctx, DType::f32, {1}, "test");
          cuda::amax(ctx, shared.part(rank), Granularity::tensor, ContractionAxis::last, with_amax.amax, false);
          of_part.split.ranks->reduce(ctx, with_amax.amax);
        }
        return cuda::quantize(ctx, shared.part(rank), casts, with_amax);
      });
      EXPECT_EQ(by_kernels->ranks.calls(), on_host->ranks.calls());
      for (std::size_t r = 0; r < 2; ++r) {
        if (casts.last.fp8()) expect_same(by_kernels->of[r].last, on_host->of[r].last);
        if (casts.first.fp8()) expect_same(by_kernels->of[r].first, on_host->of[r].first);
      }
    }
}

TEST(SplitCasts, Refusals) {
  const Matrix x(DType::bf16, 40, 50);
  const RanksInTurn ranks;
  const auto refusal = [&](const Cast& cast, const CastOptions& options, bool straddles,
                           device::DeviceType device = device::DeviceType::host) {
    Host host;
    host.context.device = device;
    host.context.dry = true;
    View v = x.view;
    v.device = device;
    CastOptions of_part = options;
    of_part.split = {&ranks, 1, 50, 150, straddles};
    return error_of([&] { quantize_both(host.context, v, {cast, {}}, of_part); });
  };
  const auto straddling = [](int block, const std::string& missing) {
    return "blocks of " + std::to_string(block) +
           " elements are on several ranks of tensor parallelism (--tp), which needs " + missing;
  };
  const std::string host = "casts on the host", sums = "sums in f32 (--accumulate f32)",
                    powers = "scales that are powers of two (--power-of-2-scales)";
  const CastOptions folded{.power_of_2 = true, .fold = true};
  EXPECT_EQ(refusal(kSquare, folded, true), "no error");
  EXPECT_EQ(refusal(kBlock128, {.power_of_2 = true}, true), straddling(128, sums));
  EXPECT_EQ(refusal(kBlock128, {.fold = true}, true), straddling(128, powers));
  EXPECT_EQ(refusal(kBlock32, {.fold = true}, true), "no error");
  EXPECT_EQ(refusal(kBlock32, {}, true), straddling(32, sums));
  for (const Cast& cast : {kSquare, kBlock128, kBlock32})
    EXPECT_EQ(refusal(cast, folded, true, device::DeviceType::cuda), straddling(cast == kBlock32 ? 32 : 128, host));
  EXPECT_EQ(refusal(kBlock32, folded, false), "quantize: element 50 of the whole is inside of a block of 32");
}

}  // namespace
}  // namespace fp8::quant
