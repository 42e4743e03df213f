// The decoder against the double-precision reference: losses, logits, and the gradient of every parameter by central
// differences; bit-identical recomputation; gradient accumulation; the order of calls to ParameterAccess.
#include "fp8/model/decoder.h"

#include <gtest/gtest.h>

#include "decoder_reference.h"

namespace fp8::model {
namespace {

using dtype::DType;
using reference::MemorySource;
using reference::ReferenceDecoder;
using reference::small_config;
using reference::some_text;
using reference::Tensors;
using reference::Text;
using reference::Values;
using tensor::Tensor;

struct Variant {
  std::string name;
  hf::ModelConfig config;
};

// Variants of the model families: each feature at least once alone and once with all others.
std::vector<Variant> variants() {
  std::vector<Variant> out{{"grouped heads", small_config()},
                           {"llama3 rope", small_config()},
                           {"biases, tied", small_config()},
                           {"q and k norms", small_config()},
                           {"everything", small_config()}};
  const hf::Rope stretched{hf::RopeType::llama3, 100, 8, 1, 4, 16};
  out[1].config.rope = stretched;
  out[1].config.head_dim = 8;  // four frequencies: unchanged, interpolated, and scaled; heads wider than the model
  out[1].config.num_key_value_heads = 4;
  out[2].config.attention_bias_qkv = out[2].config.tie_word_embeddings = true;
  out[3].config.qk_norm = true;
  out[3].config.head_dim = 6;
  hf::ModelConfig& all = out[4].config;
  all.rope = stretched;
  all.attention_bias_qkv = all.attention_bias_o = all.mlp_bias = all.qk_norm = all.tie_word_embeddings = true;
  all.num_key_value_heads = 1;
  return out;
}

// Result of one call of the decoder.
struct Result {
  std::vector<float> losses;
  Tensors gradients;
};

// Runs a decoder with an arena on texts one after the other, accumulating gradients.
Result run(const hf::ModelConfig& config, MemorySource& source, const std::vector<Text*>& texts, DType activation,
           Recompute recompute, float scale, gemm::Engine& engine) {
  device::Arena arena(std::size_t{8} << 20, device::DeviceType::host);
  Context ctx;
  ctx.arena = &arena;
  Result r;
  for (Text* text : texts) {
    const Batch batch = text->batch();
    const Tensor losses(DType::f32, {batch.rows()});
    reference::train(Decoder(config, {activation, recompute}), ctx, engine, source, batch, scale, losses.view());
    r.losses.insert(r.losses.end(), losses.as<float>(), losses.as<float>() + batch.rows());
    source.accumulate = true;
  }
  EXPECT_EQ(arena.mark(), 0u);
  for (const Parameter& p : source.table) r.gradients[p.name] = source.gradient(p);
  return r;
}

Result run(const hf::ModelConfig& config, Text& text, DType activation, Recompute recompute, float scale,
           gemm::Engine& engine) {
  const auto table = parameter_table(config);
  MemorySource source(config, table, reference::some_weights(table), activation);
  return run(config, source, {&text}, activation, recompute, scale, engine);
}

double total(const Values& v) {
  double sum = 0;
  for (const double x : v) sum += x;
  return sum;
}

// Every fifth element of a large tensor, which is one in each of five adjacent rows and columns; all of a small one.
std::vector<std::size_t> some_elements(std::size_t size) {
  std::vector<std::size_t> elements;
  for (std::size_t i = 0; i<size; i += size> 64 ? 5 : 1) elements.push_back(i);
  return elements;
}

// Gradient of scale * sum(losses) with respect to some elements of a tensor of the reference.
Values central_differences(ReferenceDecoder& reference, const std::string& name, const Text& text, double scale) {
  constexpr double kStep = 1e-5;
  Values gradient;
  for (const std::size_t element : some_elements(reference.weights.at(name).size())) {
    double& w = reference.weights.at(name)[element];
    const double at = w;
    w = at + kStep;
    const double above = total(reference.losses(text));
    w = at - kStep;
    const double below = total(reference.losses(text));
    w = at;
    gradient.push_back(scale * (above - below) / (2 * kStep));
  }
  return gradient;
}

double norm(const Values& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

double relative_error(Values value, const Values& expected) {
  for (std::size_t i = 0; i < value.size(); ++i) value[i] -= expected.at(i);
  return norm(value) / norm(expected);
}

TEST(Decoder, GradientOfEveryParameterIsTheCentralDifference) {
  gemm::Engine engine;
  for (const Variant& variant : variants()) {
    Text text = some_text(2, 5, variant.config.vocab_size, 1);
    const float scale = 1.0f / 8;
    const Result r = run(variant.config, text, DType::f32, Recompute::none, scale, engine);
    const auto table = parameter_table(variant.config);
    ReferenceDecoder reference(variant.config, reference::some_weights(table));
    const Values losses = reference.losses(text);
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(static_cast<double>(r.losses[i]), losses[i], 2e-6) << variant.name << " token " << i;
    EXPECT_EQ(r.losses[1], 0.0f) << "an ignored target";
    for (const Parameter& p : table) {
      const Values expected = central_differences(reference, p.name, text, static_cast<double>(scale));
      const Values& all = r.gradients.at(p.name);
      Values found;
      for (const std::size_t element : some_elements(all.size())) found.push_back(all[element]);
      EXPECT_LE(relative_error(found, expected), 2e-5) << variant.name << ": " << p.name;
    }
  }
}

TEST(Decoder, ForwardAndLogitsAgreeWithTheReference) {
  gemm::Engine engine;
  for (const Variant& variant : variants())
    for (const DType activation : {DType::f32, DType::bf16}) {
      Text text = some_text(2, 7, variant.config.vocab_size, 2);
      const auto table = parameter_table(variant.config);
      MemorySource source(variant.config, table, reference::some_weights(table), activation);
      device::Arena arena(std::size_t{8} << 20, device::DeviceType::host);
      Context ctx;
      ctx.arena = &arena;
      const Decoder decoder(variant.config, {activation, Recompute::none});
      const Tensor losses(DType::f32, {14}), logits(activation, {14, variant.config.vocab_size});
      decoder.forward(ctx, engine, source, text.batch(), losses.view());
      const auto logits_of = [&](std::int64_t first, const View& out) {
        MicroBatch m(decoder, ctx, engine, source, text.batch(), PassKind::inference);
        m.forward_embedding();
        m.forward_layers(0, decoder.layers());
        m.forward_logits(first, out);
      };
      logits_of(0, logits.view());
      const ReferenceDecoder reference(variant.config, reference::some_weights(table));
      const Values exact = reference.logits(text), exact_losses = reference.losses(text);
      const bool f32 = activation == DType::f32;
      for (std::int64_t i = 0; i < 14; ++i)
        EXPECT_NEAR(static_cast<double>(losses.as<float>()[i]), exact_losses[static_cast<std::size_t>(i)],
                    f32 ? 2e-6 : 0.1)
            << variant.name << " token " << i;
      for (std::int64_t i = 0; i < logits.view().size(); ++i) {
        const float value = f32 ? logits.as<float>()[i] : dtype::to_float(logits.as<dtype::Bf16>()[i]);
        ASSERT_NEAR(static_cast<double>(value), exact[static_cast<std::size_t>(i)], f32 ? 1e-5 : 0.1)
            << variant.name << " logit " << i;
      }
      const Tensor some(DType::f32, {2, variant.config.vocab_size});  // logits of rows 5 and 6
      logits_of(5, some.view());
      for (std::int64_t i = 0; i < some.view().size(); ++i)
        ASSERT_NEAR(static_cast<double>(some.as<float>()[i]),
                    exact[static_cast<std::size_t>(5 * variant.config.vocab_size + i)], f32 ? 1e-5 : 0.1)
            << variant.name << " logit " << i;
      const Result trained = run(variant.config, text, activation, Recompute::none, 1, engine);
      EXPECT_EQ(trained.losses, std::vector<float>(losses.as<float>(), losses.as<float>() + 14)) << "forward alone";
    }
}

// Scaling by a power of two changes only the exponents of the gradients.
TEST(Decoder, GradientScaleScales) {
  gemm::Engine engine;
  const hf::ModelConfig config = variants()[4].config;
  Text text = some_text(2, 5, config.vocab_size, 3);
  const Result one = run(config, text, DType::f32, Recompute::none, 1, engine),
               quarter = run(config, text, DType::f32, Recompute::none, 0.25f, engine);
  EXPECT_EQ(one.losses, quarter.losses);
  for (const auto& [name, values] : quarter.gradients) {
    Values scaled = values;
    for (double& v : scaled) v *= 4;
    EXPECT_LE(relative_error(scaled, one.gradients.at(name)), 1e-6) << name;
  }
}

TEST(Decoder, GradientsOfMicroBatchesAddUp) {
  gemm::Engine engine;
  for (const Variant& variant : variants()) {
    Text first = some_text(2, 5, variant.config.vocab_size, 4), second = some_text(1, 6, variant.config.vocab_size, 5);
    const auto table = parameter_table(variant.config);
    MemorySource source(variant.config, table, reference::some_weights(table), DType::f32);
    const Result both = run(variant.config, source, {&first, &second}, DType::f32, Recompute::none, 0.125f, engine);
    const Result a = run(variant.config, first, DType::f32, Recompute::none, 0.125f, engine);
    const Result b = run(variant.config, second, DType::f32, Recompute::none, 0.125f, engine);
    for (const auto& [name, values] : a.gradients) {
      Values sum = values;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b.gradients.at(name)[i];
      EXPECT_LE(relative_error(both.gradients.at(name), sum), 1e-6) << variant.name << ": " << name;
    }
  }
}

// Settings for bitwise comparison: an activation type and a recipe, if any.
struct Running {
  DType activation;
  const quant::Recipe* recipe;
};
std::vector<Running> precisions() {
  std::vector<Running> out{{DType::f32, nullptr}, {DType::bf16, nullptr}};
  for (const quant::Recipe& recipe : quant::recipes()) out.push_back({DType::bf16, &recipe});
  for (const char* recipe : {"rowwise", "tensorwise"}) out.push_back({DType::f32, &quant::find_recipe(recipe)});
  return out;
}

TEST(Decoder, RecomputingChangesNoBit) {
  gemm::Engine engine;
  for (const Variant& variant : variants())
    for (const Running& p : precisions()) {
      Text text = some_text(2, 16, variant.config.vocab_size, 6);
      std::vector<Result> results;
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        const auto table = parameter_table(variant.config);
        MemorySource source(variant.config, table, reference::some_weights(table), p.activation,
                            {p.recipe, {p.recipe != nullptr && p.recipe->power_of_2, nullptr}});
        results.push_back(run(variant.config, source, {&text}, p.activation, recompute, 0.125f, engine));
      }
      for (const std::size_t i : {1u, 2u}) {
        EXPECT_EQ(results[i].losses, results[0].losses) << variant.name;
        EXPECT_EQ(results[i].gradients, results[0].gradients) << variant.name;
      }
    }
}

TEST(Decoder, PlannedFp8GemmsAreTheOnesThatRun) {
  hf::ModelConfig config = small_config();
  config.vocab_size = 32;
  config.tie_word_embeddings = false;
  for (const quant::Recipe& recipe : quant::recipes())
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
      for (const bool head : {false, true}) {
        Text text = some_text(1, 16, config.vocab_size, 7);
        std::vector<Parameter> table = parameter_table(config);
        assign_precisions(table, {.recipe = &recipe, .filters = {"*.up_proj.weight"}, .lm_head = head});
        MemorySource source(config, table, reference::some_weights(table), DType::bf16,
                            {&recipe, {recipe.power_of_2, nullptr}});
        gemm::Engine engine;
        run(config, source, {&text}, DType::bf16, recompute, 1, engine);
        const gemm::Count planned = planned_fp8(config, table, recipe, 16, {DType::bf16, recompute}, true);
        EXPECT_GT(planned.gemms, 0);
        const auto kind = recipe.fp4() ? gemm::OperandKind::fp4 : gemm::OperandKind::fp8;
        EXPECT_EQ(engine.counts().linear(kind).gemms, planned.gemms) << recipe.name;
        EXPECT_EQ(engine.counts().linear(kind).flops, planned.flops) << recipe.name;
      }
}

TEST(Decoder, AttentionIsCountedSeparatelyFromLinears) {
  const hf::ModelConfig config = small_config();
  constexpr int kSequences = 2, kPositions = 5;
  const double pairs = kSequences * kPositions * (kPositions + 1) / 2.0;  // causal pairs of a query and a key
  const double forward = 4.0 * static_cast<double>(config.query_size() * config.num_hidden_layers) * pairs;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    Text text = some_text(kSequences, kPositions, config.vocab_size, 9);
    gemm::Engine engine;
    run(config, text, DType::bf16, recompute, 1, engine);
    const gemm::Counts& counts = engine.counts();
    const gemm::Count& other =
        counts.by[static_cast<std::size_t>(gemm::GemmRole::other)][static_cast<std::size_t>(gemm::OperandKind::bf16)];
    EXPECT_EQ(other.flops, (recompute == Recompute::full ? 4.5 : 3.5) * forward);
    EXPECT_EQ(other.gemms, 0);
  }
}

// The contract of weights.h: gradients from the last unit to the first, each once; prefetch before use.
TEST(Decoder, RequestsWeightsInTheOrderOfComputation) {
  gemm::Engine engine;
  for (const bool tied : {false, true})
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      hf::ModelConfig config = small_config();
      config.tie_word_embeddings = tied;
      Text text = some_text(1, 4, config.vocab_size, 8);
      const auto table = parameter_table(config);
      MemorySource source(config, table, reference::some_weights(table), DType::f32);
      run(config, source, {&text}, DType::f32, recompute, 1, engine);
      EXPECT_EQ(source.done, (std::vector<int>{3, 2, 1, 0}));
      EXPECT_EQ(source.prefetched, (std::vector<int>{0, 1, 2, 3, 2, 1, 0}));
    }
}

}  // namespace
}  // namespace fp8::model
