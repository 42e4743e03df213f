// Division of models over ranks: the blocks of all ranks tile each parameter, and what cannot be divided is refused.
#include "fp8/model/split.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "fp8/model/presets.h"
#include "fp8/quant/recipe.h"
#include "fp8_test.h"
#include "small_config.h"

namespace fp8::model {
namespace {

using test::error_of;
using Extents = std::vector<std::int64_t>;

hf::ModelConfig preset(const std::string& name) {
  EXPECT_EQ(::setenv("FP8_SHARE", "share", 1), 0);
  return hf::parse_config(read_model_config(name), name);
}

hf::ModelConfig with_vocabulary(std::int64_t size) {
  hf::ModelConfig config = small();
  config.vocab_size = size;
  return config;
}

// A model, its table and a recipe.
struct Model {
  hf::ModelConfig config;
  std::vector<Parameter> table;
  const quant::Recipe* recipe = nullptr;

  // `recipe` empty: bf16
  explicit Model(hf::ModelConfig model, const std::string& recipe_name = "", const PrecisionRules& rules = {})
      : config(std::move(model)), table(parameter_table(config)) {
    if (recipe_name.empty()) {
      for (Parameter& p : table) p.fp8 = false;
      return;
    }
    PrecisionRules all = rules;
    recipe = all.recipe = &quant::find_recipe(recipe_name);
    assign_precisions(table, all);
  }
  TensorRank at(int rank, int ranks) const { return {rank, ranks, recipe}; }
  std::vector<Parameter> local(int rank, int ranks) const { return local_table(config, table, at(rank, ranks)); }
  DividedSizes sizes(int rank, int ranks) const { return local_sizes(config, table, at(rank, ranks)); }
  std::string refusal(int ranks) const {
    return error_of([&] { sizes(0, ranks); });
  }
  // Returns, for each rank, the rows or columns of its block of a parameter, or the first index of the block.
  Extents extents(const std::string& name, int ranks) const { return each(name, ranks, false); }
  Extents firsts(const std::string& name, int ranks) const { return each(name, ranks, true); }
  Parameter find(const std::string& name, int rank, int ranks) const {
    for (const Parameter& p : local(rank, ranks))
      if (p.name == name) return p;
    throw Error("no parameter " + name);
  }

 private:
  Extents each(const std::string& name, int ranks, bool first) const {
    Extents found;
    for (int r = 0; r < ranks; ++r) {
      const Parameter p = find(name, r, ranks);
      const auto axis = static_cast<std::size_t>(p.tensor_parallel_axis);
      found.push_back(first ? p.first_row() + p.first_col() : p.shape[axis]);
    }
    return found;
  }
};

// Expects parameter i of all ranks to tile the whole one, once but for copies on adjacent ranks.
void expect_tiles(const std::vector<std::vector<Parameter>>& ranks, const Parameter& whole, std::size_t i) {
  const auto count = static_cast<int>(ranks.size());
  const int axis = whole.tensor_parallel_axis;
  std::int64_t next = 0;
  SCOPED_TRACE(whole.name);
  for (int r = 0; r < count; ++r) {
    if (r > 0 && testing::Test::HasFailure()) FAIL() << "on rank " << r - 1 << " of " << count;
    const Parameter& p = ranks[static_cast<std::size_t>(r)][i];
    ASSERT_EQ(p.name, whole.name);
    EXPECT_EQ(p.whole_shape(), whole.shape);
    EXPECT_EQ(p.fp8, whole.fp8);
    if (axis < 0) {
      EXPECT_EQ(p.shape, whole.shape);
      EXPECT_EQ(p.first_row() + p.first_col(), 0);
      EXPECT_EQ(p.copies, whole.expert >= 0 ? 1 : count) << "experts are divided by ep";
      EXPECT_EQ(grain_of(p), 0);
      continue;
    }
    ASSERT_TRUE(p.copies > 0 && count % p.copies == 0) << p.copies;
    EXPECT_EQ(p.block, r / p.copies);
    EXPECT_EQ(std::ssize(p.bounds), count / p.copies + 1);
    EXPECT_EQ(axis == 0 ? p.first_col() : p.first_row(), 0);
    const auto along = static_cast<std::size_t>(axis);
    for (std::size_t d = 0; d < p.shape.size(); ++d) {
      EXPECT_TRUE(d == along || p.shape[d] == whole.shape[d]) << "dimension " << d;
    }
    EXPECT_GT(p.shape[along], 0);
    const std::int64_t first = axis == 0 ? p.first_row() : p.first_col();
    const Parameter& leader = ranks[static_cast<std::size_t>(r / p.copies * p.copies)][i];
    if (r % p.copies == 0) {
      EXPECT_EQ(first, next);
      next += p.shape[along];
    } else {
      EXPECT_EQ(first, leader.first_row() + leader.first_col());
      EXPECT_EQ(p.shape, leader.shape);
    }
  }
  EXPECT_EQ(next, axis < 0 ? 0 : whole.shape[static_cast<std::size_t>(axis)]) << whole.name;
}

// Expects a rank's blocks to be as large as the sizes that it computes.
void expect_slots(const std::vector<Parameter>& table, const DividedSizes& sizes) {
  std::map<std::pair<int, Slot>, std::int64_t> rows;
  const std::map<Slot, std::int64_t> row_parallel{{Slot::o, sizes.query()}, {Slot::down, sizes.intermediate.local}},
      column_parallel{{Slot::qkv, sizes.query() + 2 * sizes.key_value()},
                      {Slot::gate_up, 2 * sizes.intermediate.local},
                      {Slot::embedding, sizes.vocabulary.local},
                      {Slot::head, sizes.vocabulary.local}};
  for (const Parameter& p : table) {
    std::int64_t& next = rows[{p.unit, p.slot}];
    EXPECT_EQ(p.slot_row, next) << p.name;
    next += p.rows();
    EXPECT_TRUE(!row_parallel.contains(p.slot) || p.cols() == row_parallel.at(p.slot)) << p.name;
  }
  for (const auto& [place, n] : rows)
    EXPECT_TRUE(!column_parallel.contains(place.second) || n == column_parallel.at(place.second)) << n;
}

void expect_divided(const Model& model, int count) {
  std::vector<std::vector<Parameter>> ranks;
  for (int r = 0; r < count; ++r) {
    ranks.push_back(model.local(r, count));
    expect_slots(ranks.back(), model.sizes(r, count));
  }
  for (std::size_t i = 0; i < model.table.size() && !testing::Test::HasFailure(); ++i)
    expect_tiles(ranks, model.table[i], i);
}

TEST(TensorSplit, BlocksOfAllRanksTileEachParameterOnce) {
  const struct {
    const char* name;
    std::vector<int> ranks;
  } models[] = {{"llama3-8b", {2, 4, 8, 16}}, {"mistral-7b", {8, 32}}, {"qwen2.5-0.5b", {2, 14}},
                {"qwen3-0.6b", {2, 8, 16}},   {"mixtral-8x7b", {8}},   {"qwen3-30b-a3b", {8}}};
  for (const auto& m : models)
    for (const char* recipe : {"", "tensorwise", "mxfp8", "blockwise"}) {
      const Model model(preset(m.name), recipe);
      SCOPED_TRACE(std::string(m.name) + " " + recipe);
      for (const int count : m.ranks) expect_divided(model, count);
    }
}

TEST(TensorSplit, AdaptersAreDividedWithTheirWeights) {
  hf::ModelConfig config = with_vocabulary(64);
  config.lora = hf::LoraConfig{4, 8, false, 0, hf::linear_modules(config)};
  for (const std::int64_t key_value_heads : {1, 2, 4}) {
    config.num_key_value_heads = key_value_heads;
    for (const int ranks : {2, 4}) expect_divided(Model(config), ranks);
  }
  const Model model(config);
  const std::string layer = "model.layers.1.";
  EXPECT_EQ(model.find(layer + "self_attn.q_proj.lora_A.weight", 1, 2).shape, (Extents{4, 32}));
  EXPECT_EQ(model.find(layer + "self_attn.q_proj.lora_B.weight", 1, 2).shape, (Extents{16, 4}));
  EXPECT_EQ(model.find(layer + "mlp.down_proj.lora_A.weight", 1, 2).shape, (Extents{4, 48}));
  EXPECT_EQ(model.find(layer + "mlp.down_proj.lora_B.weight", 1, 2).shape, (Extents{32, 4}));
}

TEST(TensorSplit, OneRankHasTheWholeModel) {
  const Model model(with_vocabulary(64), "tensorwise");
  const std::vector<Parameter> table = model.local(0, 1);
  for (std::size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(table[i].shape, model.table[i].shape);
    EXPECT_EQ(table[i].copies, 1);
    EXPECT_TRUE(table[i].bounds.empty());
  }
  EXPECT_EQ(model.sizes(0, 1).vocabulary.local, 64);
}

// Key and value heads that are fewer than the ranks are on several adjacent ones.
TEST(TensorSplit, KeyAndValueHeadsAreReplicatedWhereTheyAreFew) {
  hf::ModelConfig config = with_vocabulary(64);
  config.attention_bias_qkv = config.qk_norm = true;
  const Model model(config);
  const std::string attention = "model.layers.0.self_attn.";
  for (const char* name : {"k_proj.weight", "v_proj.weight", "k_proj.bias", "v_proj.bias"}) {
    EXPECT_EQ(model.firsts(attention + name, 2), (Extents{0, 8})) << name;
    EXPECT_EQ(model.find(attention + name, 1, 2).copies, 1) << name;
    EXPECT_EQ(model.firsts(attention + name, 4), (Extents{0, 0, 8, 8})) << name;
    EXPECT_EQ(model.extents(attention + name, 4), Extents(4, 8)) << name;
    EXPECT_EQ(model.find(attention + name, 3, 4).copies, 2) << name;
    EXPECT_EQ(grain_of(model.find(attention + name, 3, 4)), 8) << name;
  }
  EXPECT_EQ(model.firsts(attention + "q_proj.bias", 4), (Extents{0, 8, 16, 24}));
  EXPECT_EQ(model.find(attention + "q_norm.weight", 3, 4).copies, 4);
  EXPECT_EQ(model.find(attention + "q_proj.weight", 3, 4).slot_row, 0);
  EXPECT_EQ(model.find(attention + "k_proj.weight", 3, 4).slot_row, 8);
  EXPECT_EQ(model.find(attention + "v_proj.weight", 3, 4).slot_row, 16);
  const DividedSizes sizes = model.sizes(3, 4);
  EXPECT_EQ(sizes.heads.local, 1);
  EXPECT_EQ(sizes.heads.whole, 4);
  EXPECT_EQ(sizes.key_value_heads.local, 1);
  config.num_key_value_heads = 1;
  const Model one(config);
  EXPECT_EQ(one.firsts(attention + "k_proj.weight", 4), Extents(4, 0));
  EXPECT_EQ(one.find(attention + "k_proj.weight", 2, 4).copies, 4);
  EXPECT_EQ(grain_of(one.find(attention + "k_proj.weight", 2, 4)), 0) << "one block has no inner bounds";
}

// The MLP is divided between blocks of scales, so that ranks may have different numbers of columns.
TEST(TensorSplit, TheIntermediateSizeIsDividedInUnitsOfBlocks) {
  hf::ModelConfig config = with_vocabulary(64);
  const auto divided = [&config](std::int64_t size, const std::string& recipe, int ranks,
                                 const PrecisionRules& rules = {}) {
    config.intermediate_size = size;
    const Model model(config, recipe, rules);
    const std::string mlp = "model.layers.1.mlp.";
    const Extents extents = model.extents(mlp + "gate_proj.weight", ranks);
    EXPECT_EQ(model.extents(mlp + "up_proj.weight", ranks), extents);
    EXPECT_EQ(model.extents(mlp + "down_proj.weight", ranks), extents);
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(model.sizes(r, ranks).intermediate.local, extents[static_cast<std::size_t>(r)]);
      EXPECT_EQ(model.find(mlp + "up_proj.weight", r, ranks).slot_row, extents[static_cast<std::size_t>(r)]);
    }
    return extents;
  };
  EXPECT_EQ(divided(208, "", 2), (Extents{96, 112}));
  EXPECT_EQ(divided(208, "tensorwise", 4), (Extents{48, 48, 48, 64}));
  EXPECT_EQ(divided(208, "mxfp8", 4), (Extents{32, 64, 64, 48}));
  EXPECT_EQ(divided(640, "blockwise", 4), (Extents{128, 128, 128, 256}));
  EXPECT_EQ(divided(688, "blockwise", 4), (Extents{128, 256, 128, 176}));
  EXPECT_EQ(divided(40, "", 4), Extents(4, 10)) << "without FP8, too few units of 16 are divided evenly";
  EXPECT_EQ(divided(50, "", 4), (Extents{16, 16, 16, 2}));
  const PrecisionRules down{.recipes = {{"*.down_proj.weight", &quant::find_recipe("blockwise")}}};
  EXPECT_EQ(divided(640, "tensorwise", 4, down), (Extents{128, 128, 128, 256})) << "the largest block of the MLP";
  const PrecisionRules filtered{.filters = {"*.mlp.*"}};
  EXPECT_EQ(divided(640, "blockwise", 4, filtered), Extents(4, 160)) << "linears in bf16 have no blocks";
}

TEST(TensorSplit, TheVocabularyIsDivided) {
  hf::ModelConfig config = with_vocabulary(64);
  config.intermediate_size = 128;
  const auto divided = [&config](std::int64_t size, int ranks, bool fp8_head = false) {
    config.vocab_size = size;
    const Model model(config, "mxfp8", {.lm_head = fp8_head});
    const Extents extents = model.extents("model.embed_tokens.weight", ranks);
    EXPECT_TRUE(config.tie_word_embeddings || model.extents("lm_head.weight", ranks) == extents);
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(model.sizes(r, ranks).vocabulary.local, extents[static_cast<std::size_t>(r)]);
      EXPECT_EQ(model.sizes(r, ranks).first_token, model.find("model.embed_tokens.weight", r, ranks).first_row());
    }
    return extents;
  };
  for (const bool tied : {false, true}) {
    config.tie_word_embeddings = tied;
    EXPECT_EQ(divided(64, 4), Extents(4, 16));
    EXPECT_EQ(divided(51, 4), (Extents{16, 16, 16, 3}));
    EXPECT_EQ(divided(51, 2), (Extents{32, 19}));
    EXPECT_EQ(divided(10, 4), (Extents{2, 3, 2, 3}));
  }
  config.tie_word_embeddings = false;
  EXPECT_EQ(divided(80, 2), (Extents{32, 48}));
  EXPECT_EQ(divided(160, 2, true), (Extents{64, 96})) << "units of 32";
}

TEST(TensorSplit, ExpertsAndRoutersAreWholeOnEachRank) {
  for (const char* name : {"qwen3-moe-tiny", "mixtral-tiny"}) {
    const Model model(preset(name));
    expect_divided(model, 2);
    int experts = 0;
    const std::vector<Parameter> table = model.local(1, 2);
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (table[i].expert < 0 && table[i].slot != Slot::router) continue;
      EXPECT_EQ(table[i].shape, model.table[i].shape) << table[i].name;
      EXPECT_EQ(table[i].copies, table[i].slot == Slot::router ? 2 : 1) << table[i].name;
      experts += table[i].expert >= 0 ? 1 : 0;
    }
    EXPECT_GT(experts, 0);
  }
}

TEST(TensorSplit, GrainDividesAllInnerBounds) {
  Parameter p;
  EXPECT_EQ(grain_of(p), 0);
  p.bounds = {0, 96, 160, 208};
  EXPECT_EQ(grain_of(p), 32);
  p.bounds = {0, 128, 256, 300};
  EXPECT_EQ(grain_of(p), 128);
  p.bounds = {0, 10, 25, 32};
  EXPECT_EQ(grain_of(p), 5);
  p.bounds = {0, 77};
  EXPECT_EQ(grain_of(p), 0);
}

TEST(TensorSplit, WhatRanksCannotDivideIsRefused) {
  hf::ModelConfig config = with_vocabulary(64);
  const auto refusal = [&config](int ranks, const std::string& recipe = "", const PrecisionRules& rules = {}) {
    const Model model(config, recipe, rules);
    const std::string said = model.refusal(ranks);
    EXPECT_EQ(error_of([&] { model.local(0, ranks); }), said);
    return said;
  };
  const std::string fits = refusal(1);
  EXPECT_EQ(refusal(2), fits);
  EXPECT_EQ(refusal(4), fits);
  EXPECT_EQ(refusal(3), "the model has 4 heads, which it does not divide");
  EXPECT_EQ(refusal(8), "the model has 4 heads, which it does not divide");
  config.num_attention_heads = 12, config.num_key_value_heads = 6;
  EXPECT_EQ(refusal(4), "the model has 6 key and value heads, which it neither divides nor is a multiple of");
  EXPECT_EQ(refusal(12), fits);
  config.num_attention_heads = config.num_key_value_heads = 4;
  EXPECT_EQ(refusal(4, "mxfp8"), "the intermediate size 80 has only 3 blocks of 32");
  EXPECT_EQ(refusal(2, "blockwise"), "the intermediate size 80 has only 1 block of 128");
  EXPECT_EQ(refusal(2, "mxfp8", {.lm_head = true}), fits);
  EXPECT_EQ(refusal(2, "mxfp8", {.recipes = {{"lm_head.weight", &quant::find_recipe("blockwise")}}, .lm_head = true}),
            "the vocabulary of 64 has only 1 block of 128");
  config.intermediate_size = 3;
  EXPECT_EQ(refusal(4), "the intermediate size 3 has only 3 blocks of 1");
  config.experts = hf::ExpertsConfig{.count = 4, .per_token = 2, .intermediate_size = 16};
  config.family = hf::Family::qwen3_moe;
  EXPECT_EQ(refusal(4), fits) << "without dense layers the intermediate size is not used";
  config.vocab_size = 3;
  EXPECT_EQ(refusal(4), "the vocabulary of 3 has only 3 blocks of 1");
}

}  // namespace
}  // namespace fp8::model
