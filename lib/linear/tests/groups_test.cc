// Groups of rows against a layer for each group, bit for bit, under every recipe; groups without rows; adapters; the
// amaxes of delayed scaling; and that a group's scales are of its rows alone.
#include "fp8/linear/groups.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "fp8/base/error.h"
#include "fp8/linear/observer.h"
#include "layer.h"

namespace fp8::linear::test {
namespace {

constexpr std::int64_t kIn = 32, kOut = 48;
constexpr double kStale = 7;  // gradients before backward
const std::vector<std::int64_t> kRows{0, 1, 40, 4, 0, 5, 130, 0};
const std::vector<Part> kParts{{0, 32, true, {}, 3}, {32, 48, true, {}, 4}};

// Scales of delayed scaling, each with its reciprocal and an amax: of x, of dy and the weight by part.
struct Slots {
  Slots() : memory(DType::f32, {15}) {
    for (std::int64_t i = 0; i < 5; ++i) {
      set(memory.view(), 3 * i, std::ldexp(3.0, static_cast<int>(i)));
      set(memory.view(), 3 * i + 1, 1 / get(memory.view(), 3 * i));
    }
  }
  KnownScales known(bool own_amax) const {
    const auto slot = [&](std::int64_t i) {
      const View v = memory.view();
      return quant::KnownScale{v.rows(3 * i, 3 * i + 1), v.rows(3 * i + 1, 3 * i + 2), v.rows(3 * i + 2, 3 * i + 3),
                               own_amax};
    };
    return {slot(0), {slot(1), slot(2)}, {slot(3), slot(4)}};
  }
  double amax(std::int64_t i) const { return get(memory.view(), 3 * i + 2); }
  Tensor memory;
};

// How a mixture is computed.
struct Case {
  LinearPrecision precision;
  bool accumulate = false, adapters = false, delayed = false, own_amax = false;
};

// Groups, their inputs and results. The magnitudes of the groups' elements differ, and so do their scales.
struct Mixture {
  Mixture(DType of, std::vector<std::int64_t> rows) : type(of) {
    for (const std::int64_t r : rows) first.push_back(first.back() + r);
    const std::int64_t m = first.back(), g = groups();
    x = Tensor(type, {m, kIn}), dy = Tensor(type, {m, kOut}), w = Tensor(type, {g * kOut, kIn});
    a = Tensor(type, {2 * g * kRank, kIn}), b = Tensor(type, {g * kOut, kRank});
    for (std::int64_t i = 0; i < g; ++i) {
      if (first_of(i) < first_of(i + 1)) {
        fill_integers(x.view().rows(first_of(i), first_of(i + 1)), 5 + 8 * i, 1 + static_cast<std::uint64_t>(i));
        fill_integers(dy.view().rows(first_of(i), first_of(i + 1)), 31 - 4 * i, 11 + static_cast<std::uint64_t>(i));
      }
      fill_integers(w.view().rows(i * kOut, (i + 1) * kOut), 3 + 2 * i, 21 + static_cast<std::uint64_t>(i));
    }
    fill_integers(a.view(), 2, 31);
    fill_integers(b.view(), 2, 32);
    y = filled(type, {m, kOut}, kStale), dx = filled(type, {m, kIn}, kStale);
    dw = filled(DType::f32, {g * kOut, kIn}, kStale);
    da = filled(DType::f32, {2 * g * kRank, kIn}, kStale), db = filled(DType::f32, {g * kOut, kRank}, kStale);
    slots.resize(static_cast<std::size_t>(g));
  }
  std::int64_t groups() const { return static_cast<std::int64_t>(first.size()) - 1; }
  std::int64_t first_of(std::int64_t group) const { return first[static_cast<std::size_t>(group)]; }

  Weight prepared(const Context& ctx, const Case& c, std::int64_t g, Pass pass) const {
    const KnownScales known = c.delayed ? slots[static_cast<std::size_t>(g)].known(c.own_amax) : KnownScales{};
    Weight weight = prepare(ctx, w.view().rows(g * kOut, (g + 1) * kOut), {}, kParts, c.precision, pass, known);
    for (std::int64_t p = 0; p < 2 && c.adapters; ++p) {
      const Part& part = kParts[static_cast<std::size_t>(p)];
      weight.adapters.push_back({part, a.view().rows((2 * g + p) * kRank, (2 * g + p + 1) * kRank),
                                 b.view().rows(g * kOut + part.begin, g * kOut + part.end), scaling.view()});
    }
    return weight;
  }
  std::vector<Weight> prepared(const Context& ctx, const Case& c, Pass pass) const {
    std::vector<Weight> weights;
    for (std::int64_t g = 0; g < groups(); ++g) weights.push_back(prepared(ctx, c, g, pass));
    return weights;
  }
  Gradients gradients(const Case& c) const {
    return {dx.view(), dw.view(), {}, c.accumulate, c.adapters ? da.view() : View{}, c.adapters ? db.view() : View{}};
  }

  // All groups in one call.
  void run(const Context& ctx, const Case& c) {
    const std::vector<Weight> for_forward = prepared(ctx, c, Pass::forward),
                              for_backward = prepared(ctx, c, Pass::backward);
    forward_groups(ctx, engine, Groups{for_forward, first}, x.view(), y.view());
    backward_groups(ctx, engine, Groups{for_backward, first}, {x.view()}, dy.view(), gradients(c));
  }
  // Each group as a layer alone.
  void run_apart(const Context& ctx, const Case& c) {
    const gemm::VaryingRows varying(engine);
    for (std::int64_t g = 0; g < groups(); ++g) {
      const std::int64_t from = first_of(g), to = first_of(g + 1), n = g * kOut, rank = 2 * g * kRank;
      const auto rows = [&](const Tensor& t) { return t.view().rows(from, to); };
      Gradients of{rows(dx), dw.view().rows(n, n + kOut), {}, c.accumulate};
      const Weight for_forward = prepared(ctx, c, g, Pass::forward), for_backward = prepared(ctx, c, g, Pass::backward);
      if (c.adapters) of.a = da.view().rows(rank, rank + 2 * kRank), of.b = db.view().rows(n, n + kOut);
      if (from == to) {
        for (const View& v : {of.dw, of.a, of.b})
          for (std::int64_t i = 0; i < v.size() && !v.empty() && !c.accumulate; ++i) set(v, i, 0);
        continue;
      }
      forward(ctx, engine, for_forward, rows(x), rows(y));
      backward(ctx, engine, for_backward, rows(x), rows(dy), of);
    }
  }

  DType type;
  std::vector<std::int64_t> first{0};
  Tensor x, dy, w, a, b, scaling = filled(DType::f32, {1}, 0.5);
  Tensor y, dx, dw, da, db;
  std::vector<Slots> slots;
  gemm::Engine engine;
};

void expect_equal(const Mixture& one, const Mixture& other) {
  EXPECT_EQ(values(one.y), values(other.y));
  EXPECT_EQ(values(one.dx), values(other.dx));
  EXPECT_EQ(values(one.dw), values(other.dw));
  EXPECT_EQ(values(one.da), values(other.da));
  EXPECT_EQ(values(one.db), values(other.db));
  for (std::size_t g = 0; g < one.slots.size(); ++g)
    EXPECT_EQ(values(one.slots[g].memory), values(other.slots[g].memory)) << g;
  for (const auto kind : {gemm::OperandKind::f32, gemm::OperandKind::bf16, gemm::OperandKind::fp8}) {
    EXPECT_EQ(one.engine.counts().linear(kind).gemms, other.engine.counts().linear(kind).gemms);
    EXPECT_EQ(one.engine.counts().linear(kind).flops, other.engine.counts().linear(kind).flops);
  }
}

// Every recipe and the high precision, with and without what varies beside them.
void for_each_case(const std::function<void(DType, const Case&)>& f) {
  std::vector<LinearPrecision> precisions{{}, precision_of(quant::with_single_copy(quant::find_recipe("rowwise")))};
  for (const quant::Recipe& recipe : quant::recipes()) {
    precisions.push_back(precision_of(recipe));
    if (recipe.emulated_everywhere()) continue;
    precisions.push_back(precision_of(recipe));
    precisions.back().accumulation = gemm::Accumulation::hopper;
  }
  for (const LinearPrecision& precision : precisions)
    for (const DType type : {DType::f32, DType::bf16})
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(std::string(precision.recipe != nullptr ? precision.recipe->name : "none") +
                     (precision.accumulation == gemm::Accumulation::hopper ? " hopper" : ""));
        const bool delayed = precision.recipe != nullptr && precision.recipe->scale_rule == quant::ScaleRule::delayed;
        f(type, {precision, accumulate, !accumulate, delayed});
        if (delayed) f(type, {precision, accumulate, false, true, true});
      }
}

TEST(Groups, EqualALayerForEachGroup) {
  for_each_case([](DType type, const Case& c) {
    const Host host(std::size_t{4} << 20);
    Mixture together(type, kRows), apart(type, kRows);
    together.run(host.ctx, c);
    apart.run_apart(host.ctx, c);
    expect_equal(together, apart);
  });
}

TEST(Groups, WithoutRowsHaveNoGradient) {
  for (const bool accumulate : {false, true}) {
    const Host host;
    Mixture mixture(DType::bf16, {0, 0});
    mixture.run(host.ctx, {precision_of(quant::find_recipe("current")), accumulate, true});
    const double left = accumulate ? kStale : 0;
    for (const Tensor* t : {&mixture.dw, &mixture.da, &mixture.db})
      EXPECT_EQ(values(*t), Values(values(*t).size(), left));
    EXPECT_EQ(mixture.engine.counts().linear(gemm::OperandKind::fp8).gemms, 0);
    EXPECT_EQ(mixture.engine.counts().linear(gemm::OperandKind::bf16).gemms, 0);
  }
}

// Exact integers: the results of plain loops, whatever the other groups hold.
TEST(Groups, AreExactWithoutCasts) {
  const Host host;
  Mixture mixture(DType::f32, kRows);
  mixture.run(host.ctx, {});
  for (std::int64_t g = 0; g < mixture.groups(); ++g)
    for (std::int64_t i = mixture.first_of(g); i < mixture.first_of(g + 1); ++i)
      for (std::int64_t j = 0; j < kOut; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < kIn; ++k)
          sum += get(mixture.x.view(), i * kIn + k) * get(mixture.w.view(), (g * kOut + j) * kIn + k);
        ASSERT_EQ(get(mixture.y.view(), i * kOut + j), sum) << "group " << g;
      }
}

// The same layer with the scale of the whole tensor has other codes: a defect that the first test would show.
TEST(Groups, HaveScalesOfTheirRows) {
  for (const std::string_view recipe : {"tensorwise", "current"}) {
    const Host host;
    const Case c{precision_of(quant::find_recipe(recipe))};
    Mixture mixture(DType::bf16, kRows);
    mixture.run(host.ctx, c);
    const Tensor whole(DType::f32, {1}), y(DType::bf16, {mixture.x.view().shape[0], kOut});
    quant::amax(host.ctx, mixture.x.view(), quant::Granularity::tensor, quant::ContractionAxis::last, whole.view());
    const std::int64_t from = mixture.first_of(2), to = mixture.first_of(3);
    forward(host.ctx, mixture.engine, mixture.prepared(host.ctx, c, 2, Pass::forward), mixture.x.view().rows(from, to),
            y.view().rows(from, to), {whole.view(), true});
    const auto of_group = [&](const Tensor& t) {
      const Values all = values(t);
      return Values(all.begin() + from * kOut, all.begin() + to * kOut);
    };
    EXPECT_NE(of_group(mixture.y), of_group(y));
  }
}

// Before a history has an amax, codes are those of `current`, and the amaxes are recorded, but for groups without rows.
TEST(Groups, CastWithTheirOwnAmaxes) {
  const Host host;
  Mixture delayed(DType::bf16, kRows), current(DType::bf16, kRows);
  delayed.run(host.ctx, {precision_of(quant::find_recipe("delayed")), false, false, true, true});
  current.run(host.ctx, {precision_of(quant::find_recipe("current"))});
  EXPECT_EQ(values(delayed.y), values(current.y));
  EXPECT_EQ(values(delayed.dx), values(current.dx));
  EXPECT_EQ(values(delayed.dw), values(current.dw));
  for (std::int64_t g = 0; g < delayed.groups(); ++g) {
    const Slots& slots = delayed.slots[static_cast<std::size_t>(g)];
    const bool idle = kRows[static_cast<std::size_t>(g)] == 0;
    EXPECT_EQ(slots.amax(0), idle ? 0.0 : static_cast<double>(5 + 8 * g)) << g;  // of x
    EXPECT_EQ(slots.amax(1), static_cast<double>(3 + 2 * g)) << "a weight's amax is recorded, rows or not";
    EXPECT_EQ(slots.amax(3) > 0, !idle) << g;
  }
  const Weight weight = delayed.prepared(
      host.ctx, {precision_of(quant::find_recipe("delayed")), false, false, true, true}, 2, Pass::forward);
  EXPECT_TRUE(needed_amaxes(weight).x && needed_amaxes(weight).dy && needed_amaxes(weight).skip_nan);
}

// The plan of GEMMs and FLOPs is what runs: idle groups and padding count nothing.
TEST(Groups, RunWhatIsPlanned) {
  for (const quant::Recipe& recipe : quant::recipes()) {
    const Host host;
    Mixture mixture(DType::bf16, kRows);
    mixture.run(host.ctx, {precision_of(recipe)});
    const gemm::Count count = mixture.engine.counts().linear(kind_of(recipe));
    gemm::Count planned;
    for (const std::int64_t rows : kRows) {
      if (rows == 0) continue;
      const gemm::Count of_group = planned_fp8(kParts, kIn, recipe, rows, true);
      planned.gemms += of_group.gemms;
      planned.flops += of_group.flops;
    }
    EXPECT_EQ(count.gemms, planned.gemms);
    EXPECT_EQ(count.flops, planned.flops);
    EXPECT_EQ(planned.gemms, 5 * 2 * recipe.fp8_gemms());
  }
}

struct Watch final : Observer {
  bool active() const override { return true; }
  void observe(const Call& call, const ObservedGemm& gemm) override {
    EXPECT_EQ(call.activation, DType::bf16);
    rows.push_back(gemm.a_source.shape[0]);
    numbers.push_back(gemm.weight.part.number);
  }
  std::vector<std::int64_t> rows;
  std::vector<int> numbers;
};

TEST(Groups, ShowEachGemmToObservers) {
  const Host host;
  Watch watch;
  Case c{precision_of(quant::find_recipe("rowwise"))};
  c.precision.observer = &watch;
  Mixture mixture(DType::bf16, {3, 0, 2});
  mixture.run(host.ctx, c);
  EXPECT_EQ(watch.rows, (std::vector<std::int64_t>{3, 3, 2, 2, 3, 3, 3, 3, 2, 2, 2, 2}));
  EXPECT_EQ(watch.numbers, (std::vector<int>{3, 4, 3, 4, 3, 3, 4, 4, 3, 3, 4, 4}));
}

// A dry run in which one group has all rows bounds the memory of every division.
TEST(Groups, LargestGroupBoundsTheMemory) {
  for_each_case([](DType type, const Case& c) {
    if (c.delayed || c.adapters) return;
    device::Arena planned, used(std::size_t{4} << 20, device::DeviceType::host);
    Mixture dry(type, {180, 0, 0, 0, 0, 0, 0, 0}), mixture(type, kRows);
    Context ctx;
    ctx.dry = true;
    ctx.arena = &planned;
    dry.run(ctx, c);
    ctx.dry = false;
    ctx.arena = &used;
    mixture.run(ctx, c);
    EXPECT_LE(used.peak(), planned.peak());
    EXPECT_LE(mixture.engine.scratch_bytes(), dry.engine.scratch_bytes());
  });
}

TEST(Groups, NeedAFirstRowEach) {
  const Host host;
  Mixture mixture(DType::bf16, kRows);
  mixture.first.pop_back();
  const std::vector<Weight> weights(8);
  EXPECT_THROW(
      forward_groups(host.ctx, mixture.engine, Groups{weights, mixture.first}, mixture.x.view(), mixture.y.view()),
      Error);
}

}  // namespace
}  // namespace fp8::linear::test
