// x as codes that several ranks have cast, each its own rows: results have the bits of a layer that casts the whole x.
#include "fp8/linear/codes.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "layer.h"

namespace fp8::linear::test {
namespace {

// The codes of rows that ranks cast apart, of which one has none.
InputCodes cast_apart(Host& host, const Weight& weight, Pass pass, const View& x, const View& amax) {
  const View all = tensor::allocate(host.ctx, DType::u8, {x.shape[0], x.shape[1]}, "test");
  InputCodes codes;
  for (const auto& [first, last] : {std::pair(0, 5), {5, 5}, {5, 24}}) {
    codes = cast_rows(host.ctx, weight, pass, x.rows(first, last), amax);
    std::copy_n(codes.bytes.as<std::uint8_t>(), codes.bytes.size(), all.rows(first, last).as<std::uint8_t>());
  }
  codes.bytes = all;
  return codes;
}

TEST(InputCodes, GiveTheBitsOfACastOfTheWhole) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const char* name : {"tensorwise", "current", "delayed"})
      for (const bool has_scale : {false, true}) {
        SCOPED_TRACE(name);
        Host host;
        gemm::Engine engine;
        Layer whole(type, 24, 32, three_parts(true), {31, 13, 5}), layer(type, 24, 32, three_parts(true), {31, 13, 5});
        const Tensor scale = filled(DType::f32, {1}, 11), inverse = filled(DType::f32, {1}, 1.0 / 11),
                     amax(DType::f32, {1}), of_whole(DType::f32, {1}), of_rows(DType::f32, {1});
        quant::amax(host.ctx, layer.x.view(), quant::Granularity::tensor, quant::ContractionAxis::last, amax.view());
        const auto weight = [&](const Layer& of, Pass pass, const View& recorded) {
          KnownScales known;
          if (has_scale) known.x = {scale.view(), inverse.view(), recorded};
          return prepare(host.ctx, of.w.view(), {}, of.parts, precision_of(quant::find_recipe(name)), pass, known);
        };
        const Gradients of_layer{layer.dx.view(), layer.dw.view(), {}}, expected{whole.dx.view(), whole.dw.view(), {}};
        const View given = has_scale ? View{} : amax.view();
        const Weight forth = weight(layer, Pass::forward, of_rows.view()), back = weight(layer, Pass::backward, {});
        ASSERT_TRUE(reads_codes(forth, Pass::forward, given) && reads_codes(back, Pass::backward, given));
        forward_codes(host.ctx, engine, forth, cast_apart(host, forth, Pass::forward, layer.x.view(), given),
                      layer.y.view());
        backward_codes(host.ctx, engine, back, cast_apart(host, back, Pass::backward, layer.x.view(), given),
                       layer.dy.view(), of_layer, {});
        forward(host.ctx, engine, weight(whole, Pass::forward, of_whole.view()), whole.x.view(), whole.y.view());
        backward(host.ctx, engine, weight(whole, Pass::backward, {}), whole.x.view(), whole.dy.view(), expected);
        EXPECT_EQ(values(layer.y), values(whole.y));
        EXPECT_EQ(values(layer.dx), values(whole.dx));
        EXPECT_EQ(values(layer.dw), values(whole.dw));
        EXPECT_EQ(get(of_rows.view(), 0), get(of_whole.view(), 0));
      }
}

TEST(InputCodes, AreNotEnoughWhereXItselfIsRead) {
  Host host;
  const Layer layer(DType::bf16, 24, 32, three_parts(true), {31});
  const Tensor amax = filled(DType::f32, {1}, 31);
  const auto reads = [&](const std::vector<Part>& parts, const LinearPrecision& precision, Pass pass, bool adapter) {
    Weight w = prepare(host.ctx, layer.w.view(), {}, parts, precision, pass);
    if (adapter) w.adapters.push_back({});
    return reads_codes(w, pass, amax.view());
  };
  const LinearPrecision precision = precision_of(quant::find_recipe("tensorwise"));
  EXPECT_TRUE(reads(layer.parts, precision, Pass::forward, false));
  EXPECT_FALSE(reads(layer.parts, precision, Pass::forward, true)) << "an adapter";
  for (const char* recipe : {"rowwise", "rowwise_with_gw_hp", "blockwise", "mxfp8"})
    EXPECT_FALSE(reads(layer.parts, precision_of(quant::find_recipe(recipe)), Pass::forward, false)) << recipe;
  EXPECT_FALSE(reads(layer.parts, {}, Pass::forward, false)) << "no recipe";
  std::vector<Part> parts = layer.parts;
  parts[1].gemms.wgrad = false;
  EXPECT_TRUE(reads(parts, precision, Pass::forward, false));
  EXPECT_FALSE(reads(parts, precision, Pass::backward, false)) << "one part's wgrad is not FP8";
  parts[2].fp8 = false;
  EXPECT_FALSE(reads(parts, precision, Pass::forward, false)) << "one part is not FP8";
  EXPECT_FALSE(
      reads_codes(prepare(host.ctx, layer.w.view(), {}, layer.parts, precision, Pass::forward), Pass::forward, {}))
      << "no amax";
}

}  // namespace
}  // namespace fp8::linear::test
