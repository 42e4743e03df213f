// Which models, tables and settings the flag --tp accepts, and what the message says about others.
#include "fp8/model/parameters.h"
#include "fp8/quant/recipe.h"
#include "fp8/settings/mesh.h"
#include "small_model.h"

namespace fp8::settings {
namespace {

using namespace test;

// A model with these sizes, its table, and a run with --tp.
struct Divided {
  std::int64_t heads = 6, key_value_heads = 2, intermediate = 96, vocabulary = 64;
  std::string recipe{};  // empty: bf16
  bool codes = false;    // the weights of `slot` are FP8 codes, beside which adapters are trained
  model::Slot slot = model::Slot::down;
  std::int64_t ranks = 60;

  std::string refusal(std::int64_t tp, const std::function<void(RunConfig&)>& change = {}) const {
    hf::ModelConfig model = small_model();
    model.num_attention_heads = heads, model.num_key_value_heads = key_value_heads;
    model.head_dim = 8, model.intermediate_size = intermediate, model.vocab_size = vocabulary;
    RunConfig c;
    c.tp = tp, c.batch_size = 2, c.seq_length = 16;
    std::vector<model::Parameter> table = model::parameter_table(model);
    if (!recipe.empty()) {
      c.precision.precision = Precision::fp8, c.precision.recipe = recipe;
      model::PrecisionRules rules;
      rules.recipe = c.precision.recipe_or_null();
      model::assign_precisions(table, rules);
    }
    for (model::Parameter& p : table)
      if (codes && p.slot == slot) p.trainable = false, p.stored = dtype::DType::e4m3;
    if (change) change(c);
    const TensorDivision division = division_of(c, model, table);
    const MeshLimits limits = mesh_limits("m.h5", model, [&](std::int64_t parts) { return division.refusal(parts); });
    return error_of([&] { fitting_mesh(c, ranks, limits, "fp8-step"); });
  }
};

TEST(TensorParallel, HeadsThatItDoesNotDivideAreNamedWithWhatFits) {
  EXPECT_EQ(Divided{}.refusal(2), kNoError);
  EXPECT_EQ(Divided{}.refusal(4), "--tp 4: the model has 6 heads, which it does not divide; --tp 2 or 6 fits");
  EXPECT_EQ(Divided{}.refusal(12), "--tp 12: the model has 6 heads, which it does not divide; --tp 6 fits");
  EXPECT_EQ(
      Divided{}.refusal(3),
      "--tp 3: the model has 2 key and value heads, which it neither divides nor is a multiple of; --tp 2 or 6 fits");
  EXPECT_EQ((Divided{.key_value_heads = 1}.refusal(6)), kNoError);
  EXPECT_EQ((Divided{.heads = 5, .key_value_heads = 5}.refusal(2)),
            "--tp 2: the model has 5 heads, which it does not divide; --tp 1 or 5 fits");
}

TEST(TensorParallel, ARankNeedsABlockOfTheIntermediateSizeAndOfTheVocabulary) {
  EXPECT_EQ((Divided{.heads = 4, .recipe = "mxfp8"}.refusal(4)),
            "--tp 4: the intermediate size 96 has only 3 blocks of 32; --tp 2 fits");
  EXPECT_EQ((Divided{.heads = 4, .recipe = "blockwise"}.refusal(2)),
            "--tp 2: the intermediate size 96 has only 1 block of 128; --tp 1 fits");
  EXPECT_EQ((Divided{.heads = 4, .recipe = "tensorwise"}.refusal(4)), kNoError);
  EXPECT_EQ((Divided{.heads = 4, .vocabulary = 3}.refusal(4)),
            "--tp 4: the vocabulary of 3 has only 3 blocks of 1; --tp 2 fits");
}

TEST(TensorParallel, ARankNeedsARow) {
  EXPECT_EQ(Divided{}.refusal(2, [](RunConfig& c) { c.sample_every = 5; }), kNoError);
  EXPECT_EQ(Divided{}.refusal(2, [](RunConfig& c) { c.batch_size = 1, c.seq_length = 1; }),
            "--tp 2: the smallest pass has 1 token, and each rank needs one; --tp 1 fits");
  const Divided many{.heads = 32, .key_value_heads = 32, .intermediate = 512, .vocabulary = 512, .ranks = 32};
  EXPECT_EQ(many.refusal(32, [](RunConfig& c) { c.sample_every = 5; }),
            "--tp 32: the smallest pass has 16 tokens, and each rank needs one; --tp 16 fits");
}

TEST(TensorParallel, BlocksThatNoRankHasAloneHaveNoStatistics) {
  const auto measured = [](RunConfig& c) { c.stats_every = 5; };
  EXPECT_EQ((Divided{.heads = 4, .recipe = "rowwise"}.refusal(2, measured)), kNoError);
  EXPECT_EQ((Divided{.heads = 4, .recipe = "mxfp8"}.refusal(2)), kNoError);
  EXPECT_EQ((Divided{.heads = 4, .recipe = "mxfp8"}.refusal(2, measured)),
            "--tp 2: blocks of 32 elements of model.layers.0.self_attn.q_proj.weight are on several ranks, so that "
            "there are no statistics of them; --tp 1 fits");
  EXPECT_EQ((Divided{.heads = 4, .recipe = "mxfp8"}.refusal(1, measured)), kNoError);
}

TEST(TensorParallel, StoredCodesOfABlockStayOnARank) {
  EXPECT_EQ((Divided{.recipe = "tensorwise", .codes = true}.refusal(2)), kNoError);
  EXPECT_EQ((Divided{.heads = 4, .intermediate = 512, .recipe = "blockwise", .codes = true}.refusal(2)), kNoError);
  EXPECT_EQ(
      (Divided{.heads = 32, .intermediate = 512, .recipe = "blockwise", .codes = true, .slot = model::Slot::o}.refusal(
          4)),
      "--tp 4: model.layers.0.self_attn.o_proj.weight is stored as codes, of which blocks of 128 elements "
      "would be on several ranks; --tp 2 fits");
}

}  // namespace
}  // namespace fp8::settings
