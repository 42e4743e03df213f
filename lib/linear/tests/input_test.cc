// Inputs that forward leaves to backward as codes: results have the bits of a layer that keeps x and casts it in both
// passes.
#include "fp8/linear/input.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "fp8/linear/observer.h"
#include "layer.h"

namespace fp8::linear::test {
namespace {

// Overwrites the memory of the arena that is free for scratch now.
void use_scratch(Host& host) {
  const device::Scope scope(*host.ctx.arena);
  const View some = tensor::allocate(host.ctx, DType::u8, {1 << 18}, "test");
  std::memset(some.data, 0x7f, some.bytes());
}

// Known scales of x and dy, as delayed scaling has them, and what a layer records and counts.
struct Scales {
  explicit Scales(bool known) {
    if (!known) return;
    scales.x = {scale.view(), inverse.view(), amax.view()};
    scales.dy.assign(3, {scale.view(), inverse.view(), {}});
    scales.w.resize(3);
  }
  Weight prepared(Host& host, const Layer& layer, const quant::Recipe& recipe, Pass pass) {
    LinearPrecision precision = precision_of(recipe);
    precision.options.counts = &counts;
    return prepare(host.ctx, layer.w.view(), layer.bias.view(), layer.parts, precision, pass, scales);
  }
  Tensor scale = filled(DType::f32, {1}, 11), inverse = filled(DType::f32, {1}, 1.0 / 11), amax{DType::f32, {1}};
  KnownScales scales;
  quant::CastCounts counts;
};

// Two micro-batches whose forward passes come before their backward passes.
struct MicroBatches {
  explicit MicroBatches(DType type)
      : first(type, 24, 32, three_parts(true), kLossy), second(type, 24, 32, three_parts(true), kLossy) {
    fill_integers(second.x.view(), 19, 77);
  }
  Layer first, second;
};

void expect_same(const Layer& a, const Layer& b) {
  EXPECT_EQ(values(a.y), values(b.y));
  EXPECT_EQ(values(a.dx), values(b.dx));
  EXPECT_EQ(values(a.dw), values(b.dw));
  EXPECT_EQ(values(a.db), values(b.db));
}

TEST(Input, CodesThatForwardLeavesGiveTheBitsOfX) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const quant::Recipe& recipe : fp8_recipes())
      for (const bool known : {false, true}) {
        if (known && recipe.scale_rule != quant::ScaleRule::delayed) continue;
        SCOPED_TRACE(recipe.name);
        Host host;
        MicroBatches plain(type), kept(type);
        Scales of_plain(known), of_kept(known);
        for (Layer* l : {&plain.first, &plain.second})
          l->run(host.ctx, of_plain.prepared(host, *l, recipe, Pass::forward),
                 of_plain.prepared(host, *l, recipe, Pass::backward));
        std::vector<std::unique_ptr<device::PooledMemory>> memory;
        std::vector<Input> left;
        for (Layer* l : {&kept.first, &kept.second}) {
          const device::Scope scope(*host.ctx.arena);
          const Weight w = of_kept.prepared(host, *l, recipe, Pass::forward);
          memory.push_back(std::make_unique<device::PooledMemory>(*host.ctx.arena));
          const Input x = cast_input(host.ctx, w, l->x.view(), {}, memory.back().get());
          forward(host.ctx, l->engine, w, x, l->y.view());
          const bool columns = forms_kept(host.ctx, w, l->x.view()).columns;
          EXPECT_EQ(columns, type == DType::f32 && recipe.wgrad.x.fp8()) << "codes have two bytes on the host";
          left.push_back(columns ? Input{.values = {}, .columns = x.columns, .activation = type}
                                 : values_of(l->x.view()));
        }
        use_scratch(host);
        for (Layer* l : {&kept.second, &kept.first}) {
          const device::Scope scope(*host.ctx.arena);
          const Weight w = of_kept.prepared(host, *l, recipe, Pass::backward);
          backward(host.ctx, l->engine, w, left.back(), l->dy.view(), {l->dx.view(), l->dw.view(), l->db.view()});
          left.pop_back();
        }
        expect_same(kept.first, plain.first);
        expect_same(kept.second, plain.second);
        EXPECT_EQ(get(of_kept.amax.view(), 0), get(of_plain.amax.view(), 0));
        EXPECT_EQ(of_kept.counts.elements, of_plain.counts.elements);
        EXPECT_EQ(of_kept.counts.saturated, of_plain.counts.saturated);
        EXPECT_EQ(of_kept.counts.underflowed, of_plain.counts.underflowed);
      }
}

// An observer that sees nothing.
class Watching final : public Observer {
 public:
  bool active() const override { return watching; }
  void observe(const Call&, const ObservedGemm&) override {}
  bool watching = true;
};

TEST(Input, ValuesAreKeptWhereBackwardReadsThem) {
  Host host;
  const Layer layer(DType::f32, 24, 32, three_parts(true), {31});
  Watching watching;
  const auto kept = [&](const char* recipe, const std::vector<Part>& parts, LinearPrecision precision = {}) {
    const LinearPrecision plain = precision_of(quant::find_recipe(recipe));
    precision.recipe = plain.recipe;
    precision.options.power_of_2 = plain.options.power_of_2;
    return forms_kept(host.ctx, prepare(host.ctx, layer.w.view(), {}, parts, precision, Pass::forward), layer.x.view());
  };
  const InputForms values{.values = true}, columns{.columns = true};
  EXPECT_EQ(kept("tensorwise", layer.parts), columns);
  EXPECT_EQ(kept("rowwise_with_gw_hp", layer.parts), values) << "wgrad reads x";
  EXPECT_EQ(kept("nvfp4", layer.parts), values) << "codes of FP4 take as much memory as x";
  LinearPrecision observed;
  observed.observer = &watching;
  EXPECT_EQ(kept("tensorwise", layer.parts, observed), values) << "an observer reads x";
  watching.watching = false;
  EXPECT_EQ(kept("tensorwise", layer.parts, observed), columns) << "an observer that is not active";
  std::vector<Part> parts = layer.parts;
  parts[1].gemms.wgrad = false;
  EXPECT_EQ(kept("tensorwise", parts), values) << "wgrad of one part reads x";
  for (Part& p : parts) p.gemms = {.forward = false, .dgrad = true, .wgrad = true};
  EXPECT_EQ(kept("delayed", parts), values) << "amaxes of x are recorded in backward";
  Weight adapted =
      prepare(host.ctx, layer.w.view(), {}, layer.parts, precision_of(quant::find_recipe("tensorwise")), Pass::forward);
  adapted.adapters.push_back({});
  EXPECT_EQ(forms_kept(host.ctx, adapted, layer.x.view()), values) << "an adapter reads x";
  EXPECT_EQ(forms_kept(host.ctx, prepare(host.ctx, layer.w.view(), {}, layer.parts, {}, Pass::forward), layer.x.view()),
            values)
      << "no recipe";
  Context device = host.ctx;
  device.device = device::DeviceType::cuda;
  Weight plain = adapted;
  plain.adapters.clear();
  const auto shape = [](std::int64_t rows, DType type) {
    return tensor::make_view(nullptr, type, device::DeviceType::cuda, {rows, 32});
  };
  EXPECT_EQ(forms_kept(device, plain, shape(24, DType::bf16)), columns) << "one byte in place of two";
  EXPECT_EQ(forms_kept(device, plain, shape(8, DType::bf16)), values) << "lines of codes are 16 bytes";
  EXPECT_EQ(forms_kept(host.ctx, plain, Tensor(DType::bf16, {24, 32}).view()), values) << "two bytes in place of two";
  plain.precision.options.emulate = true;
  EXPECT_EQ(forms_kept(device, plain, shape(24, DType::bf16)), values) << "emulated codes have two bytes";
}

}  // namespace
}  // namespace fp8::linear::test
