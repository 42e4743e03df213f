// Linear layers that ranks share: every FP8 operand of every GEMM has the codes and scales of the same elements in the
// whole layer, and amaxes are reduced once for each operand that needs it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "fp8/base/error.h"
#include "fp8/linear/observer.h"
#include "fp8_ranks.h"
#include "fp8_test.h"
#include "layer.h"

namespace fp8::linear::test {
namespace {

using fp8::test::error_of;
using fp8::test::RanksInTurn;

constexpr std::int64_t kWholeRows = 24, kWholeIn = 300;
constexpr int kRanks = 3;
constexpr std::size_t kProjections = 2;
// First rows of each projection, and first columns, of each rank; blocks straddle ranks.
constexpr std::int64_t kFirstRow[kProjections][kRanks + 1] = {{0, 50, 130, 200}, {0, 10, 70, 100}},
                                                        kFirstColumn[kRanks + 1] = {0, 90, 171, kWholeIn};

// A matrix that was cast: its codes, of which those of blocks are folded, and the scale of each.
struct CastMatrix {
  std::int64_t columns = 0;
  Values codes, scales;
  bool operator==(const CastMatrix&) const = default;

  CastMatrix part(std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) const {
    const auto rows = [&](const Values& v) {
      return test::columns({v.begin() + r0 * columns, v.begin() + r1 * columns}, columns, c0, c1);
    };
    return {c1 - c0, rows(codes), rows(scales)};
  }
};

CastMatrix cast_of(const quant::Quantized& q) {
  const View& m = q.codes;
  CastMatrix out{m.shape[1], {}, {}};
  for (std::int64_t r = 0; r < m.shape[0]; ++r)
    for (std::int64_t c = 0; c < m.shape[1]; ++c) {
      out.codes.push_back(static_cast<double>(dtype::to_float(m.as<Bf16>()[r * m.stride[0] + c * m.stride[1]])));
      const std::int64_t of = q.contract == quant::ContractionAxis::last ? r : c;
      const bool one = q.granularity == quant::Granularity::tensor;
      out.scales.push_back(q.folded ? 1 : get(q.scale, one ? 0 : of));
    }
  return out;
}

// The operands of all FP8 GEMMs, by role and projection.
class Operands : public Observer {
 public:
  bool active() const override { return true; }
  void observe(const Call&, const ObservedGemm& gemm) override {
    for (const quant::Quantized* q : {&gemm.a, &gemm.b})
      EXPECT_TRUE(q->folded || q->granularity == quant::Granularity::tensor ||
                  q->granularity == quant::Granularity::row);
    of[{gemm.role, gemm.weight.part.number}] = {cast_of(gemm.a), cast_of(gemm.b)};
  }
  std::map<std::pair<gemm::GemmRole, int>, std::pair<CastMatrix, CastMatrix>> of;
};

// Adds elements of which every row and every column has one, each of another size, and so large that under their scales
// the others become subnormal codes: these change with the scale even if it is a power of two.
void add_peaks(const View& matrix, std::int64_t first_row, std::int64_t rows) {
  const std::int64_t n = matrix.shape[1];
  for (std::int64_t i = 0; i < std::max(rows, n); ++i) {
    const std::int64_t at = (first_row + i % rows) * n + i * 37 % n;
    set(matrix, at, std::copysign(static_cast<double>((256 + i) << 12), get(matrix, at)));
  }
}

struct Whole : Layer {
  explicit Whole(DType of)
      : Layer(of, kWholeRows, kWholeIn, {{0, 200, true, {}, 0}, {200, 300, true, {}, 1}}, {31, 13}) {
    add_peaks(x.view(), 0, kWholeRows);
    add_peaks(dy.view(), 0, kWholeRows);
    for (const Part& p : parts) add_peaks(w.view(), p.begin, p.end - p.begin);
  }
};

// Columns of a matrix to those of another.
void copy_columns(const View& from, std::int64_t begin, const View& to, std::int64_t to_begin, std::int64_t n) {
  for (std::int64_t r = 0; r < from.shape[0]; ++r)
    for (std::int64_t c = 0; c < n; ++c)
      set(to, r * to.shape[1] + to_begin + c, get(from, r * from.shape[1] + begin + c));
}

std::int64_t first_column(int axis, int rank) { return axis == 1 ? kFirstColumn[rank] : 0; }
std::int64_t end_column(int axis, int rank) { return axis == 1 ? kFirstColumn[rank + 1] : kWholeIn; }

std::vector<Part> parts_of(std::vector<Part> parts, int axis, int rank) {
  std::int64_t rows = 0;
  for (std::size_t p = 0; p < kProjections && axis == 0; ++p) {
    parts[p].whole_begin = kFirstRow[p][rank];
    parts[p].whole_rows = kFirstRow[p][kRanks];
    parts[p].begin = rows;
    parts[p].end = rows += kFirstRow[p][rank + 1] - parts[p].whole_begin;
  }
  return parts;
}

// The layer of a rank.
struct PartOf : Layer {
  PartOf(const Layer& whole, int axis, int rank)
      : Layer(whole.type, kWholeRows, end_column(axis, rank) - first_column(axis, rank),
              parts_of(whole.parts, axis, rank), {1, 1}) {
    const std::int64_t first = first_column(axis, rank);
    copy_columns(whole.x.view(), first, x.view(), 0, k);
    for (std::size_t p = 0; p < kProjections; ++p) {
      const std::int64_t begin = whole.parts[p].begin + parts[p].whole_begin, rows = parts[p].end - parts[p].begin;
      copy_columns(whole.dy.view(), begin, dy.view(), parts[p].begin, rows);
      copy_columns(whole.w.view().rows(begin, begin + rows), first, w.view().rows(parts[p].begin, parts[p].end), 0, k);
    }
  }
};

// What a run of a layer leaves.
struct Result {
  Operands operands;
  double amax_of_x = 0;
};

// Runs a layer as a model does: with memory for the amax of x between forward and backward.
void run_as_model(Layer& layer, LinearPrecision precision, Result& result) {
  Host host(std::size_t{1} << 24);
  precision.observer = &result.operands;
  const Weight forward = prepare(host.ctx, layer.w.view(), {}, layer.parts, precision, Pass::forward),
               backward = prepare(host.ctx, layer.w.view(), {}, layer.parts, precision, Pass::backward);
  const Tensor amax(DType::f32, {1});
  layer.run(host.ctx, forward, backward, false, {amax.view(), false},
            {needed_amaxes(forward).x ? amax.view() : View{}, {}});
  result.amax_of_x = get(amax.view(), 0);
}

// Runs the layers of all ranks; returns the reductions of each.
std::size_t run_ranks(const Layer& whole, int axis, LinearPrecision precision, std::vector<Result>& results,
                      const AmaxReducer* reducer = nullptr) {
  RanksInTurn ranks;
  results.resize(kRanks);
  ranks.run(kRanks, [&](int rank) {
    PartOf layer(whole, axis, rank);
    precision.tensor_parallel = {reducer != nullptr ? reducer : &ranks, axis, first_column(axis, rank), kWholeIn, true};
    Result& result = results[static_cast<std::size_t>(rank)] = {};
    run_as_model(layer, precision, result);
  });
  return ranks.calls();
}

// Calls same(rank's operand, elements of the whole's) for each operand.
template <class F>
void compare(const Operands& whole, int axis, const std::vector<Result>& ranks, F&& same) {
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto& results = ranks[static_cast<std::size_t>(rank)].operands.of;
    ASSERT_EQ(results.size(), whole.of.size());
    for (const auto& [gemm, operands] : results) {
      const auto& [a, b] = whole.of.at(gemm);
      const auto p = static_cast<std::size_t>(gemm.second);
      const std::int64_t all = kFirstRow[p][kRanks], r0 = axis == 0 ? kFirstRow[p][rank] : 0,
                         r1 = axis == 0 ? kFirstRow[p][rank + 1] : all, c0 = first_column(axis, rank),
                         c1 = end_column(axis, rank);
      const bool forward = gemm.first == gemm::GemmRole::forward, wgrad = gemm.first == gemm::GemmRole::wgrad;
      SCOPED_TRACE("rank " + std::to_string(rank) + ", GEMM " + std::to_string(static_cast<int>(gemm.first)) +
                   ", projection " + std::to_string(p));
      same(operands.first, forward ? a.part(0, kWholeRows, c0, c1) : a.part(0, kWholeRows, r0, r1));
      same(operands.second, wgrad ? b.part(0, kWholeRows, c0, c1) : b.part(r0, r1, c0, c1));
    }
  }
}

const quant::Recipe& single_copy() { return quant::with_single_copy(quant::find_recipe("rowwise")); }

// Reductions in both passes: of each projection's weight for forward and for dgrad and of its dy, and of x.
struct Expected {
  const quant::Recipe& recipe;
  std::size_t rows, columns;  // if ranks share rows of the weight, or columns
};
std::vector<Expected> expected() {
  const auto find = [](std::string_view name) -> const quant::Recipe& { return quant::find_recipe(name); };
  return {{find("tensorwise"), 3 * kProjections, 2 * kProjections + 1},
          {find("rowwise"), 2 * kProjections, kProjections + 1},
          {find("rowwise_with_gw_hp"), 2 * kProjections, 2 * kProjections + 1},
          {single_copy(), kProjections, 2 * kProjections + 1},
          {find("current"), 3 * kProjections, 2 * kProjections + 1},
          {find("delayed"), 3 * kProjections, 2 * kProjections + 1},
          {find("blockwise"), 3 * kProjections, 2 * kProjections + 1},
          {find("mxfp8"), 2 * kProjections, kProjections + 1}};
}

TEST(TensorParallel, OperandsAreThoseOfTheWhole) {
  ASSERT_EQ(expected().size(), fp8_recipes().size() + 1)
      << "nvfp4, whose blocks are on one rank: quant/tests/fp4_test.cc";
  for (const DType type : {DType::f32, DType::bf16})
    for (const Expected& t : expected())
      for (const int axis : {0, 1}) {
        SCOPED_TRACE(std::string(t.recipe.name) + ", axis " + std::to_string(axis));
        Whole layer(type);
        Result whole;
        run_as_model(layer, precision_of(t.recipe), whole);
        std::vector<Result> ranks;
        EXPECT_EQ(run_ranks(layer, axis, precision_of(t.recipe), ranks), axis == 0 ? t.rows : t.columns);
        compare(whole.operands, axis, ranks,
                [](const CastMatrix& part, const CastMatrix& of_whole) { EXPECT_TRUE(part == of_whole); });
        for (const Result& r : ranks) EXPECT_EQ(r.amax_of_x, whole.amax_of_x);
      }
}

// Ranks that keep their own amaxes.
class Nothing : public AmaxReducer {
 public:
  void reduce(const Context&, const View&) const override {}
};

// Shows that the matrices above need reductions under every recipe.
TEST(TensorParallel, OwnAmaxesGiveOtherOperands) {
  const Nothing nothing;
  for (const Expected& t : expected())
    for (const int axis : {0, 1}) {
      Whole layer(DType::bf16);
      Result whole;
      run_as_model(layer, precision_of(t.recipe), whole);
      std::vector<Result> ranks;
      EXPECT_EQ(run_ranks(layer, axis, precision_of(t.recipe), ranks, &nothing), 0u);
      int differ = 0;
      compare(whole.operands, axis, ranks,
              [&](const CastMatrix& part, const CastMatrix& of_whole) { differ += part == of_whole ? 0 : 1; });
      EXPECT_GT(differ, 0) << t.recipe.name << ", axis " << axis;
    }
}

// Known scales and amaxes are of the whole.
TEST(TensorParallel, KnownScalesNeedNoReduction) {
  const Tensor one = filled(DType::f32, {1}, 1);
  const quant::KnownScale known{one.view(), one.view(), {}};
  const KnownScales all{known, {known, known}, {known, known}};
  const Whole whole(DType::bf16);
  for (const int axis : {0, 1}) {
    RanksInTurn ranks;
    ranks.run(kRanks, [&](int rank) {
      Host host(std::size_t{1} << 24);
      PartOf layer(whole, axis, rank);
      LinearPrecision precision = precision_of(quant::find_recipe("delayed"));
      precision.tensor_parallel = {&ranks, axis, kFirstColumn[rank], kWholeIn, true};
      const auto prepared = [&](Pass pass) {
        return prepare(host.ctx, layer.w.view(), {}, layer.parts, precision, pass, all);
      };
      layer.run(host.ctx, prepared(Pass::forward), prepared(Pass::backward));
    });
    EXPECT_EQ(ranks.calls(), 0u);
  }
}

// Factors are of the columns of the whole.
TEST(TensorParallel, ColumnFactors) {
  const Tensor factors(DType::f32, {kWholeIn});
  for (std::int64_t i = 0; i < kWholeIn; ++i) set(factors.view(), i, 1 - static_cast<double>(i) / (3 * kWholeIn));
  for (const int axis : {0, 1}) {
    LinearPrecision precision = precision_of(quant::find_recipe("tensorwise"));
    precision.column_factors = factors.view();
    Whole layer(DType::bf16);
    Result whole;
    run_as_model(layer, precision, whole);
    std::vector<Result> ranks;
    run_ranks(layer, axis, precision, ranks);
    compare(whole.operands, axis, ranks,
            [](const CastMatrix& part, const CastMatrix& of_whole) { EXPECT_TRUE(part == of_whole); });
  }
}

constexpr std::int64_t kRanksOfAll = static_cast<std::int64_t>(kProjections) * kRank;

// A layer whose weight is stored as codes, with an adapter beside each projection. Everything is an integer, or a
// multiple of a quarter where rows have scales, so that sums are exact in f32 in any order.
struct Adapted {
  Adapted(const Layer& of, const std::vector<double>& scales_of_rows)
      : scales(DType::f32, {of.n}),
        inverse(DType::f32, {of.n}),
        a(DType::f32, {kRanksOfAll, of.k}),
        b(DType::f32, {of.n, kRank}),
        da(DType::f32, {kRanksOfAll, of.k}),
        db(DType::f32, {of.n, kRank}) {
    for (std::int64_t i = 0; i < of.n; ++i) {
      set(scales.view(), i, scales_of_rows[static_cast<std::size_t>(i)]);
      set(inverse.view(), i, 1 / scales_of_rows[static_cast<std::size_t>(i)]);
    }
    fill_integers(a.view(), 2, 30);
    fill_integers(b.view(), 2, 40);
  }
  void run(Layer& layer, const LinearPrecision& precision) const {
    Host host(std::size_t{1} << 24);
    const Tensor bytes(DType::u8, {layer.n, layer.k});
    const float one = 1;
    quant::cast_to_bytes(host.ctx, layer.w.view(), DType::e4m3, &one, bytes.view(), nullptr);
    const std::int64_t count = precision.recipe->single_copy ? layer.n : kProjections;
    const Codes codes{bytes.view(), scales.view().rows(0, count), inverse.view().rows(0, count)};
    const Tensor scaling = filled(DType::f32, {1}, 0.5);
    const auto prepared = [&](Pass pass) {
      Weight weight = prepare_codes(host.ctx, codes, {}, layer.parts, precision, pass);
      for (std::int64_t p = 0; p < static_cast<std::int64_t>(kProjections); ++p) {
        const Part& part = layer.parts[static_cast<std::size_t>(p)];
        weight.adapters.push_back(
            {part, a.view().rows(p * kRank, (p + 1) * kRank), b.view().rows(part.begin, part.end), scaling.view()});
      }
      return weight;
    };
    forward(host.ctx, layer.engine, prepared(Pass::forward), layer.x.view(), layer.y.view());
    backward(host.ctx, layer.engine, prepared(Pass::backward), layer.x.view(), layer.dy.view(),
             {layer.dx.view(), {}, {}, false, da.view(), db.view()});
  }
  Tensor scales, inverse, a, b, da, db;
};

// The rows of the whole weight that a rank has.
std::vector<std::int64_t> rows_of_rank(const Layer& whole, const Layer& part) {
  std::vector<std::int64_t> rows;
  for (std::size_t p = 0; p < kProjections; ++p)
    for (std::int64_t r = part.parts[p].begin; r < part.parts[p].end; ++r)
      rows.push_back(whole.parts[p].begin + part.parts[p].whole_begin + r - part.parts[p].begin);
  return rows;
}

// Adds a rank's matrix to the sum of all at these rows and columns.
void add_at(Values& sum, std::int64_t columns, const Tensor& part, const std::vector<std::int64_t>& rows,
            std::int64_t first_column) {
  const std::int64_t width = part.view().shape[1];
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::int64_t c = 0; c < width; ++c)
      sum[static_cast<std::size_t>(rows[r] * columns + first_column + c)] +=
          get(part.view(), static_cast<std::int64_t>(r) * width + c);
}

std::vector<std::int64_t> all_rows(std::int64_t n) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// What ranks compute with codes and adapters adds up to, or is part of, what one rank computes, with no difference.
TEST(TensorParallel, AdaptersBesideStoredCodesAreExact) {
  for (const bool by_row : {false, true})
    for (const int axis : {0, 1}) {
      SCOPED_TRACE(std::string(by_row ? "rows" : "tensors") + ", axis " + std::to_string(axis));
      const quant::Recipe& recipe = by_row ? single_copy() : quant::find_recipe("tensorwise");
      LinearPrecision precision = precision_of(recipe);
      precision.options.power_of_2 = true;
      Layer whole(DType::f32, kWholeRows, kWholeIn, {{0, 200, true, {}, 0}, {200, 300, true, {}, 1}}, {31, 13});
      std::vector<double> scales;
      for (std::int64_t i = 0; i < whole.n; ++i) scales.push_back(static_cast<double>(1 << (by_row ? i % 3 : 0)));
      const Adapted of_whole(whole, scales);
      of_whole.run(whole, precision);
      const std::int64_t n = whole.n;
      Values y(static_cast<std::size_t>(kWholeRows * n)), dx(static_cast<std::size_t>(kWholeRows * kWholeIn)),
          da(static_cast<std::size_t>(kRanksOfAll * kWholeIn)), db(static_cast<std::size_t>(n * kRank));
      RanksInTurn ranks;
      ranks.run(kRanks, [&](int rank) {
        if (rank == 0)
          for (Values* sum : {&y, &dx, &da, &db}) std::ranges::fill(*sum, 0);
        PartOf layer(whole, axis, rank);
        const std::vector<std::int64_t> rows = rows_of_rank(whole, layer);
        const std::int64_t first = first_column(axis, rank);
        std::vector<double> own;
        for (const std::int64_t r : rows) own.push_back(scales[static_cast<std::size_t>(r)]);
        const Adapted adapted(layer, own);
        copy_columns(of_whole.a.view(), first, adapted.a.view(), 0, layer.k);
        for (std::size_t r = 0; r < rows.size(); ++r)
          copy_columns(of_whole.b.view().rows(rows[r], rows[r] + 1), 0,
                       adapted.b.view().rows(static_cast<std::int64_t>(r), static_cast<std::int64_t>(r) + 1), 0, kRank);
        precision.tensor_parallel = {&ranks, axis, first, kWholeIn, true};
        adapted.run(layer, precision);
        for (std::size_t r = 0; r < rows.size(); ++r)
          for (std::int64_t m = 0; m < kWholeRows; ++m)
            y[static_cast<std::size_t>(m * n + rows[r])] +=
                get(layer.y.view(), m * layer.n + static_cast<std::int64_t>(r));
        add_at(dx, kWholeIn, layer.dx, all_rows(kWholeRows), first);
        add_at(da, kWholeIn, adapted.da, all_rows(kRanksOfAll), first);
        add_at(db, kRank, adapted.db, rows, 0);
      });
      EXPECT_EQ(y, values(whole.y));
      EXPECT_EQ(dx, values(whole.dx));
      EXPECT_EQ(da, values(of_whole.da));
      EXPECT_EQ(db, values(of_whole.db));
    }
}

// Sums in the order of a tensor core need the scales of blocks.
TEST(TensorParallel, StraddlingBlocksNeedSumsInF32) {
  const Whole whole(DType::bf16);
  for (const auto& [name, block] : {std::pair{"blockwise", "128"}, {"mxfp8", "32"}}) {
    const RanksInTurn ranks;
    PartOf layer(whole, 1, 1);
    LinearPrecision precision = precision_of(quant::find_recipe(name));
    precision.accumulation = gemm::Accumulation::hopper;
    precision.tensor_parallel = {&ranks, 1, kFirstColumn[1], kWholeIn, true};
    Host host(std::size_t{1} << 24);
    EXPECT_EQ(error_of([&] { layer.run(host.ctx, precision); }).find(std::string("blocks of ") + block), 0u);
  }
}

}  // namespace
}  // namespace fp8::linear::test
