// Linears that ranks divide: rows that are computed while others travel give the bits of all rows at once, wherever
// they may be computed apart.
#include "divided.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "../../linear/tests/layer.h"
#include "fp8/linear/codes.h"

namespace fp8::model {
namespace {

using dtype::DType;
using linear::Pass;
using linear::Weight;
using linear::test::values;
using tensor::Tensor;

constexpr std::int64_t kRows = 24, kFirst = 5;

// A layer on the second of two ranks, which has rows from kFirst on. The rows of the first rank are copied from a
// matrix with all rows.
class SecondRank final : public TensorExchange {
 public:
  explicit SecondRank(bool overlapping, DType type = DType::bf16)
      : layer(type, kRows, 32, linear::test::three_parts(true), {31, 13, 5}), overlapping_(overlapping) {
    const auto amax = [&](const View& of, const View& to) {
      quant::amax(host.ctx, of, quant::Granularity::tensor, quant::ContractionAxis::last, to);
    };
    amax(layer.x.view(), of_x.view());
    for (std::int64_t p = 0; p < 3; ++p) {
      const linear::Part& part = layer.parts[static_cast<std::size_t>(p)];
      amax(layer.dy.view().columns(part.begin, part.end), of_dy.view().rows(p, p + 1));
    }
  }
  int ranks() const override { return 2; }
  int rank() const override { return 1; }
  std::int64_t first_row(std::int64_t all, int rank) const override { return rank == 0 ? 0 : rank == 1 ? kFirst : all; }
  bool overlaps(const Context&) const override { return overlapping_; }
  void gather(const Context&, const View& own, const View& all) override { copy(own, 0, all); }
  std::function<void()> start_shift(const Context&, const View& own, int, const View& arriving) override {
    ++shifts;
    return [=, this, before = flops()] {
      computed_meanwhile = flops() > before;
      copy(own, 0, arriving);
    };
  }
  void sum(const Context&, const View& partial, const View&, const View& own) override {
    whole = partial;
    copy(own, kFirst, own);
  }

  Weight prepared(const linear::LinearPrecision& precision, Pass pass, const linear::KnownScales& known = {}) {
    return linear::prepare(host.ctx, layer.w.view(), {}, layer.parts, precision, pass, known);
  }
  DividedLinear divided(const Weight& weight) { return {host.ctx, layer.engine, rows, weight}; }
  // Own rows of x, or of dy.
  View own_input(Weight weight, Pass pass) {
    weight.precision.options.counts = nullptr;
    if (linear::reads_codes(weight, pass, of_x.view()))
      codes = linear::cast_rows(host.ctx, weight, pass, layer.x.view(), of_x.view()).bytes;
    whole = layer.x.view();
    return whole.rows(kFirst, kRows);
  }
  View own_gradient() {
    whole = layer.dy.view();
    return whole.rows(kFirst, kRows);
  }

  linear::test::Host host;
  linear::test::Layer layer;
  Tensor of_x{DType::f32, {1}}, of_dy{DType::f32, {3}};
  DividedRows rows{*this, kRows};
  View whole, codes;  // all rows of what is exchanged, and their codes
  int shifts = 0;
  bool computed_meanwhile = false;

 private:
  void copy(const View& own, std::int64_t first, const View& to) const {
    const View& all = own.dtype == DType::u8 ? codes : whole;
    std::memcpy(to.data, all.rows(first, all.shape[0]).data, to.bytes());
  }
  double flops() const { return layer.engine.counts().linear(gemm::OperandKind::fp8).flops; }
  bool overlapping_;
};

// Results of both kinds of linears under a recipe.
struct Outcome {
  Outcome(const quant::Recipe& recipe, bool overlapping) {
    SecondRank r(overlapping);
    linear::LinearPrecision precision = linear::test::precision_of(recipe);
    precision.options.counts = &counts;
    const Weight forth = r.prepared(precision, Pass::forward), back = r.prepared(precision, Pass::backward);
    const linear::KnownAmaxes amaxes{r.of_x.view(), r.of_dy.view()};
    const View dx = r.layer.dx.view(), dw = r.layer.dw.view();
    const auto expect_overlap = [&](int shifts) {
      EXPECT_EQ(r.shifts, overlapping ? shifts : 0);
      EXPECT_EQ(std::exchange(r.computed_meanwhile, false), overlapping);
    };
    ColumnParallel{r.divided(forth)}.forward(r.own_input(forth, Pass::forward), r.layer.y.view(), amaxes.x, nullptr);
    expect_overlap(1);
    const linear::Input own = linear::values_of(r.own_input(back, Pass::backward));
    ColumnParallel{r.divided(back)}.backward(own, r.layer.dy.view(), {dx.rows(kFirst, kRows), dw, {}}, amaxes);
    expect_overlap(2);
    results = {values(r.layer.y), values(r.layer.dx), values(r.layer.dw)};
    RowParallel{r.divided(back)}.backward(linear::values_of(r.layer.x.view()), r.own_gradient(), {dx, dw, {}}, amaxes);
    expect_overlap(3);
    results.insert(results.end(), {values(r.layer.dx), values(r.layer.dw)});
    gemms = r.layer.engine.counts().linear(gemm::OperandKind::fp8).gemms;
  }
  std::vector<linear::test::Values> results;
  quant::CastCounts counts;
  std::int64_t gemms = 0;
};

TEST(Divided, RowsThatArriveDuringGemmsGiveTheBitsOfAllRows) {
  for (const quant::Recipe& recipe : quant::recipes()) {
    if (recipe.fp4()) continue;  // it has a scale of all rows
    SCOPED_TRACE(recipe.name);
    const Outcome whole(recipe, false), apart(recipe, true);
    EXPECT_EQ(apart.results, whole.results);
    EXPECT_EQ(apart.counts.elements, whole.counts.elements);
    EXPECT_EQ(apart.counts.underflowed, whole.counts.underflowed);
    EXPECT_EQ(apart.gemms, whole.gemms);
  }
}

TEST(Divided, CodesOfForwardServeRowsThatArriveInBackward) {
  for (const quant::Recipe& recipe : linear::test::fp8_recipes())
    for (const bool overlapping : {false, true}) {
      SCOPED_TRACE(recipe.name);
      SecondRank r(overlapping, DType::f32);
      const Weight forth = r.prepared(linear::test::precision_of(recipe), Pass::forward),
                   back = r.prepared(linear::test::precision_of(recipe), Pass::backward);
      const linear::KnownAmaxes amaxes{r.of_x.view(), r.of_dy.view()};
      const View x = r.layer.x.view(), own_y = r.layer.y.view().rows(kFirst, kRows);
      const auto gradients = [&](const linear::Input& input) {
        RowParallel{r.divided(back)}.backward(input, r.own_gradient(), {r.layer.dx.view(), r.layer.dw.view(), {}},
                                              amaxes);
        return std::pair(values(r.layer.dx), values(r.layer.dw));
      };
      device::PooledMemory memory(*r.host.ctx.arena);
      const linear::Input left = RowParallel{r.divided(forth)}.forward(x, own_y, amaxes.x, true, &memory);
      EXPECT_EQ(left.values.empty(), recipe.wgrad.x.fp8());
      EXPECT_EQ(gradients(left), gradients(linear::values_of(x)));
      const linear::Input own = ColumnParallel{r.divided(forth)}.forward(r.own_input(forth, Pass::forward),
                                                                         r.layer.y.view(), amaxes.x, &memory);
      EXPECT_FALSE(own.values.empty()) << "codes of all rows take more memory";
    }
}

TEST(Divided, RowsAreComputedApartWithKnownScalesAndWithoutAdapters) {
  SecondRank r(true);
  const Tensor one = linear::test::filled(DType::f32, {1}, 31);
  const auto weight = [&](const char* recipe, Pass pass, const linear::KnownScales& known = {}) {
    return r.prepared(linear::test::precision_of(quant::find_recipe(recipe)), pass, known);
  };
  const auto overlaps = [&](const Weight& w, const View& amax) {
    r.shifts = 0;
    ColumnParallel{r.divided(w)}.forward(r.own_input(w, Pass::forward), r.layer.y.view(), amax, nullptr);
    return r.shifts > 0;
  };
  EXPECT_TRUE(overlaps(weight("rowwise", Pass::forward), {}));
  EXPECT_TRUE(overlaps(weight("tensorwise", Pass::forward), r.of_x.view()));
  EXPECT_FALSE(overlaps(weight("tensorwise", Pass::forward), {})) << "the amax is that of all rows";
  EXPECT_FALSE(overlaps(weight("nvfp4", Pass::forward), r.of_x.view())) << "so it is under the scales of blocks";
  const quant::KnownScale known{one.view(), one.view(), {}}, own{one.view(), one.view(), {}, true};
  EXPECT_TRUE(overlaps(weight("delayed", Pass::forward, {known, {known, known, known}, {}}), {}));
  EXPECT_FALSE(overlaps(weight("delayed", Pass::forward, {own, {known, known, known}, {}}), r.of_x.view()))
      << "the amax of a cast";
  Weight adapted = weight("rowwise", Pass::forward);
  const linear::Part& part = r.layer.parts.front();
  const Tensor a(DType::bf16, {4, 32}), b(DType::bf16, {part.end, 4});
  adapted.adapters.push_back({part, a.view(), b.view(), one.view()});
  EXPECT_FALSE(overlaps(adapted, {}));
  const Weight back = weight("tensorwise", Pass::backward);
  for (const View& amax : {r.of_dy.view(), View{}}) {
    r.shifts = 0;
    RowParallel{r.divided(back)}.backward(linear::values_of(r.layer.x.view()), r.own_gradient(),
                                          {r.layer.dx.view(), {}, {}}, {{}, amax});
    EXPECT_EQ(r.shifts > 0, !amax.empty()) << "the amaxes of dy are those of all rows";
  }
}

}  // namespace
}  // namespace fp8::model
