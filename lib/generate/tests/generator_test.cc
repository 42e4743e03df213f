// Generation with small models: equal for any number of threads and any way of storing the same weights, reasons for
// the end of a text, prompts.
#include "fp8/generate/generator.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>

#include "fp8/convert/convert.h"
#include "fp8/convert/quantize.h"
#include "fp8/model/initialize.h"
#include "fp8_test.h"

namespace fp8::generate {
namespace {

using dtype::DType;

struct Made {
  Generated text;
  std::vector<float> log_probabilities;
};

class Generation : public test::FolderTest {
 protected:
  // The reference model llama3 as a checkpoint; its weights are bf16.
  std::string model() {
    const std::string path = at("model.h5");
    if (!std::filesystem::exists(path)) (void)convert::convert("tests/golden/models/wide/hf", path, {});
    return path;
  }
  static Made run(const std::string& path, const Precision& precision, const Sampling& sampling = {},
                  Request request = {.max_tokens = 24}, const Codec* codec = nullptr) {
    Generator generator(convert::open_model(path), precision);
    Sampler sampler(sampling);
    request.log_probabilities = true;
    Made made;
    made.text = generator.run({1, 17, 200, 3, 9}, request, codec, sampler,
                              [&](const NewToken& token) { made.log_probabilities.push_back(*token.log_probability); });
    return made;
  }
  static void expect_equal(const Made& a, const Made& b, const std::string& what) {
    EXPECT_EQ(a.text.ids, b.text.ids) << what;
    EXPECT_EQ(a.log_probabilities, b.log_probabilities) << what;
  }
};

TEST_F(Generation, ThreadsDoNotChangeBits) {
  const int before = omp_get_max_threads();
  for (const DType compute : {DType::f32, DType::bf16}) {
    for (const char* recipe : {"", "tensorwise", "rowwise", "blockwise", "mxfp8"}) {
      if (*recipe != 0 && compute == DType::f32) continue;
      const Precision precision{compute, *recipe == 0 ? nullptr : &quant::find_recipe(recipe)};
      omp_set_num_threads(1);
      const Made one = run(model(), precision, {.seed = 3});
      omp_set_num_threads(3);
      expect_equal(run(model(), precision, {.seed = 3}), one, recipe);
      EXPECT_NE(run(model(), precision, {.seed = 4}).text.ids, one.text.ids) << "another seed";
    }
  }
  omp_set_num_threads(before);
}

TEST_F(Generation, StoredCodesGiveTheTokensOfTheirRecipe) {
  struct Case {
    quant::Granularity scaling;
    const char* recipe;
  };
  for (const auto& [scaling, recipe] : {Case{quant::Granularity::tensor, "tensorwise"},
                                        {quant::Granularity::row, "rowwise"},
                                        {quant::Granularity::block128x128, "blockwise"},
                                        {quant::Granularity::block1x32, "mxfp8"}}) {
    const quant::Recipe& of = quant::find_recipe(recipe);
    const std::string codes = at(std::string(recipe) + ".h5");
    (void)convert::quantize(model(), codes, {.scaling = scaling, .power_of_2 = of.power_of_2});
    const convert::OpenModel stored = convert::open_model(codes);
    EXPECT_EQ(convert::stored_scaling(stored.source, stored.table), scaling);
    const Precision fp8{DType::bf16, &of};
    expect_equal(run(codes, fp8), run(model(), fp8), recipe);
  }
  const convert::OpenModel plain = convert::open_model(model());
  EXPECT_FALSE(convert::stored_scaling(plain.source, plain.table).has_value());
}

TEST_F(Generation, BlockScalesThatAreNoPowersOfTwo) {
  const std::string codes = at("blocks.h5");
  (void)convert::quantize(model(), codes, {.scaling = quant::Granularity::block128x128});
  const Made made = run(codes, {DType::bf16, &quant::find_recipe("blockwise")}, {.temperature = 0}),
             near = run(model(), {DType::bf16, &quant::find_recipe("blockwise")}, {.temperature = 0});
  EXPECT_NEAR(made.log_probabilities.front(), near.log_probabilities.front(), 0.05);
}

TEST_F(Generation, CodesAreMultipliedByTheirScalesWithoutFp8) {
  const std::string codes = at("codes.h5"), back = at("back.h5");
  (void)convert::quantize(model(), codes, {.scaling = quant::Granularity::row});
  (void)convert::dequantize(codes, back, {});
  for (const DType compute : {DType::f32, DType::bf16})
    expect_equal(run(codes, {compute, nullptr}), run(back, {compute, nullptr}), std::string(name_of(compute)));
}

TEST_F(Generation, NewAdaptersChangeNothing) {
  const std::string plain = at("plain.h5"), adapted = at("adapted.h5");
  hf::ModelConfig config = convert::open_model(model()).config;
  (void)model::initialize(config, plain, {});
  config.lora = hf::LoraConfig{};
  config.lora->rank = 4;
  config.lora->alpha = 8;
  for (const char* name : {"self_attn.k_proj", "self_attn.v_proj", "mlp.up_proj", "mlp.down_proj"})
    config.lora->targets.push_back(std::string("model.layers.1.") + name);
  (void)model::initialize(config, adapted, {});  // B is zero
  for (const quant::Recipe* recipe : {static_cast<const quant::Recipe*>(nullptr), &quant::recipes().front()})
    expect_equal(run(adapted, {DType::bf16, recipe}), run(plain, {DType::bf16, recipe}), "adapters");
}

TEST_F(Generation, PrecisionsAreNear) {
  const Made f32 = run(model(), {DType::f32, nullptr}, {.temperature = 0});
  EXPECT_NEAR(run(model(), {DType::bf16, nullptr}, {.temperature = 0}).log_probabilities[0], f32.log_probabilities[0],
              0.03);
  for (const quant::Recipe& recipe : quant::recipes()) {
    if (recipe.scale_rule == quant::ScaleRule::delayed) continue;
    const Made fp8 = run(model(), {DType::bf16, &recipe}, {.temperature = 0});
    EXPECT_NEAR(fp8.log_probabilities[0], f32.log_probabilities[0], 0.2) << recipe.name;
    EXPECT_NE(fp8.log_probabilities[0], f32.log_probabilities[0]) << recipe.name;
  }
}

TEST_F(Generation, WhyATextEnds) {
  const Precision f32{DType::f32, nullptr};
  const Made all = run(model(), f32);
  EXPECT_EQ(all.text.end, End::max_tokens);
  EXPECT_EQ(all.text.ids.size(), 24u);
  const std::int64_t fourth = all.text.ids[3];
  const Made ended = run(model(), f32, {}, {.max_tokens = 24, .end_tokens = {fourth}});
  const auto first = std::ranges::find(all.text.ids, static_cast<std::uint32_t>(fourth));
  EXPECT_EQ(ended.text.end, End::end_token);
  EXPECT_EQ(ended.text.ids, Ids(all.text.ids.begin(), first + 1)) << "with the token that ends it";
  const Made full = run(model(), f32, {}, {.max_tokens = 100000});
  EXPECT_EQ(full.text.end, End::context);
  EXPECT_EQ(full.text.ids.size(), 251u) << "256 less the prompt";
  const Codec bytes;
  const std::string text = run(model(), f32, {}, {.max_tokens = 24}, &bytes).text.text;
  const std::string stop = text.substr(text.size() / 2, 4);
  const Made stopped = run(model(), f32, {}, {.max_tokens = 24, .stops = {stop}}, &bytes);
  EXPECT_EQ(stopped.text.end, End::stop);
  EXPECT_EQ(stopped.text.text, text.substr(0, text.find(stop)));
}

TEST_F(Generation, PromptsOneAfterTheOther) {
  const convert::OpenModel model = convert::open_model(this->model());
  Generator generator(model, {DType::f32, nullptr});
  Sampler sampler({.temperature = 0});
  const auto ids = [&](const Ids& prompt) {
    return generator.run(prompt, {.max_tokens = 8}, nullptr, sampler, [](const NewToken&) {}).ids;
  };
  Ids longer(150);
  for (std::size_t i = 0; i < longer.size(); ++i) longer[i] = static_cast<std::uint32_t>(i * 7 % 256);
  const Ids before = ids({1, 2, 3}), of_longer = ids(longer);
  EXPECT_EQ(ids({1, 2, 3}), before);
  EXPECT_EQ(ids(longer), of_longer);
  EXPECT_EQ(test::error_of([&] { ids({}); }), "no tokens");
  EXPECT_EQ(test::error_of([&] { ids({1, 256}); }), "token 256 is not in the model's vocabulary of 256");
  EXPECT_EQ(test::error_of([&] { ids(Ids(256, 1)); }), "256 tokens leave no room in the model's context of 256");
}

TEST_F(Generation, AModelWithoutFp8IsRefusedInFp8) {
  const std::string path = at("none.h5");
  (void)convert::convert("tests/golden/models/wide/hf", path,
                         {.precisions = model::PrecisionRules{.filters = {"*proj*"}}});
  const std::string message = test::error_of(
      [&] {
        run(path, {DType::bf16, &quant::recipes().front()});
      },
      Exit::fp8_missing);
  EXPECT_NE(message.find("no linear of this model can run in FP8"), std::string::npos) << message;
}

}  // namespace
}  // namespace fp8::generate
