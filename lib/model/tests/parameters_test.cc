// The parameter table against the tensors of the reference models, and the compute precisions.
#include "fp8/model/parameters.h"

#include <algorithm>
#include <map>

#include "fp8/hf/folder.h"
#include "golden_models.h"
#include "small_config.h"

namespace fp8::model {
namespace {

using test::error_of;
using test::golden;

const Parameter& find(const std::vector<Parameter>& table, const std::string& name) {
  const auto at = std::find_if(table.begin(), table.end(), [&](const Parameter& p) { return p.name == name; });
  if (at == table.end()) throw Error("no parameter " + name);
  return *at;
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, NamesAndShapesAreThoseOnDisk) {
  const hf::Folder folder(golden(GetParam()));
  std::map<std::string, std::vector<std::int64_t>> table, disk;
  for (const Parameter& p : parameter_table(folder.config())) table[p.name] = p.shape;
  for (const hf::Folder::Entry& e : folder.tensors()) disk[e.info->name] = e.info->shape;
  EXPECT_EQ(table, disk);
}

TEST_P(Golden, SlotsAreFilledWithoutGaps) {
  std::map<std::pair<int, Slot>, std::int64_t> rows;
  for (const Parameter& p : parameter_table(hf::Folder(golden(GetParam())).config())) {
    std::int64_t& next = rows[{p.unit, p.slot}];
    EXPECT_EQ(p.slot_row, next) << p.name;
    EXPECT_EQ(p.decay, p.shape.size() == 2) << p.name;
    next += p.rows();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Golden,
                         testing::Values("llama3", "llama-tied", "qwen2", "qwen3", "mixtral", "wide-moe"));

TEST(Parameters, OrderIsThatOfTheComputation) {
  const std::vector<Parameter> table = parameter_table(small());
  EXPECT_EQ(table.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(table[1].name, "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(table[table.size() - 2].name, "model.norm.weight");
  EXPECT_EQ(table.back().name, "lm_head.weight");
  EXPECT_EQ(table.back().unit, 3);
  EXPECT_TRUE(std::is_sorted(table.begin(), table.end(), [](const Parameter& a, const Parameter& b) {
    return std::pair(a.unit, a.slot) < std::pair(b.unit, b.slot);
  }));
}

TEST(Parameters, TensorParallelAxes) {
  hf::ModelConfig config = small();
  config.attention_bias_qkv = config.attention_bias_o = config.mlp_bias = config.qk_norm = true;
  const std::vector<Parameter> table = parameter_table(config);
  const auto axis = [&](const std::string& name) { return find(table, "model.layers.1." + name).tensor_parallel_axis; };
  EXPECT_EQ(axis("self_attn.k_proj.weight"), 0);
  EXPECT_EQ(axis("self_attn.k_proj.bias"), 0);
  EXPECT_EQ(axis("self_attn.o_proj.weight"), 1);
  EXPECT_EQ(axis("self_attn.o_proj.bias"), -1);
  EXPECT_EQ(axis("mlp.up_proj.bias"), 0);
  EXPECT_EQ(axis("mlp.down_proj.weight"), 1);
  EXPECT_EQ(axis("self_attn.q_norm.weight"), -1);
  EXPECT_EQ(find(table, "model.layers.1.mlp.up_proj.weight").slot_row, 80);
}

TEST(Parameters, Counts) {
  hf::ModelConfig config = small();
  // Per layer: q, o 32x32, k, v 16x32, three of 80x32; two norms.
  const std::int64_t linears = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 80 * 32);
  EXPECT_EQ(parameter_count(parameter_table(config)), linears + 5 * 32 + 2 * 48 * 32);
  EXPECT_EQ(training_flops_per_token(config, parameter_table(config)), 6.0 * static_cast<double>(linears + 48 * 32));
  config.tie_word_embeddings = true;
  EXPECT_EQ(parameter_count(parameter_table(config)), linears + 5 * 32 + 48 * 32);
  EXPECT_EQ(training_flops_per_token(config, parameter_table(config)), 6.0 * static_cast<double>(linears + 48 * 32));
}

// A token computes with 2 of 8 experts in both layers.
TEST(Parameters, FlopsAreThoseOfActiveExperts) {
  hf::ModelConfig config = small();
  const double dense = training_flops_per_token(config, parameter_table(config));
  config.experts = hf::ExpertsConfig{.count = 8, .per_token = 2, .intermediate_size = 24};
  const double replaced = 6.0 * 2 * 3 * 80 * 32, active = 6.0 * 2 * (2 * 3 * 24 * 32 + 8 * 32);
  EXPECT_EQ(training_flops_per_token(config, parameter_table(config)), dense - replaced + active);
  config.experts->per_token = 8;
  EXPECT_EQ(training_flops_per_token(config, parameter_table(config)),
            dense - replaced + 6.0 * 2 * (8 * 3 * 24 * 32 + 8 * 32));
}

// The small model with adapters on k and v of layer 0 and on everything of layer 1.
hf::ModelConfig with_adapters() {
  hf::ModelConfig config = small();
  config.lora = hf::LoraConfig{4, 8, false, 0, {"model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.v_proj"}};
  for (const std::string& module : hf::linear_modules(config))
    if (module.starts_with("model.layers.1.")) config.lora->targets.push_back(module);
  return config;
}

TEST(Adapters, FollowTheWeightsOfTheirSlot) {
  const std::vector<Parameter> table = parameter_table(with_adapters());
  const auto at = [&](std::size_t i) { return table[5 + i].name.substr(table[5 + i].name.find("self_attn.") + 10); };
  EXPECT_EQ(at(0), "k_proj.lora_A.weight");
  EXPECT_EQ(at(1), "v_proj.lora_A.weight");
  EXPECT_EQ(at(2), "k_proj.lora_B.weight");
  EXPECT_EQ(at(3), "v_proj.lora_B.weight");
  EXPECT_EQ(at(4), "o_proj.weight");
  const Parameter &a = table[6], &b = table[8];
  EXPECT_EQ(a.shape, (std::vector<std::int64_t>{4, 32}));
  EXPECT_EQ(b.shape, (std::vector<std::int64_t>{16, 4}));
  EXPECT_EQ(a.slot, Slot::qkv_a);
  EXPECT_EQ(b.slot, Slot::qkv_b);
  EXPECT_EQ(a.slot_row, 4);
  EXPECT_EQ(b.slot_row, 16);
  EXPECT_EQ(adapted_module(a), "model.layers.0.self_attn.v_proj");
  EXPECT_EQ(adapted_module(b), adapted_module(a));
  EXPECT_TRUE(a.decay && b.decay && !a.fp8 && !b.matmul());
  EXPECT_EQ(a.reason, "adapter");
  EXPECT_EQ(find(table, "model.layers.1.mlp.down_proj.lora_A.weight").tensor_parallel_axis, 1);
  EXPECT_EQ(find(table, "model.layers.1.mlp.up_proj.lora_B.weight").tensor_parallel_axis, 0);
}

TEST(Adapters, AloneAreTrainable) {
  const std::vector<Parameter> table = parameter_table(with_adapters());
  for (const Parameter& p : table) EXPECT_EQ(p.trainable, p.role == ParameterRole::adapter) << p.name;
  for (const Parameter& p : parameter_table(small())) EXPECT_TRUE(p.trainable) << p.name;
  // Layer 0: k, v of 16x32. Layer 1: q, o 32x32, k, v, three of 80x32.
  const std::int64_t adapters = 4 * (2 * 48 + 2 * 64 + 2 * 48 + 3 * 112);
  EXPECT_EQ(trainable_count(table), adapters);
  EXPECT_EQ(parameter_count(table), parameter_count(parameter_table(small())) + adapters);
  const double frozen = training_flops_per_token(small(), parameter_table(small())) / 6;
  EXPECT_EQ(training_flops_per_token(with_adapters(), table), 4 * frozen + 6 * static_cast<double>(adapters));
}

TEST(Precision, DefaultsAndReasons) {
  hf::ModelConfig config = small();
  config.intermediate_size = 72;
  const std::vector<Parameter> table = parameter_table(config);
  EXPECT_TRUE(find(table, "model.layers.0.self_attn.v_proj.weight").fp8);
  EXPECT_EQ(find(table, "model.layers.0.self_attn.v_proj.weight").reason, "");
  EXPECT_EQ(find(table, "model.layers.0.mlp.up_proj.weight").reason, "72 rows are not a multiple of 16");
  EXPECT_EQ(find(table, "model.layers.0.mlp.down_proj.weight").reason, "72 columns are not a multiple of 16");
  EXPECT_EQ(find(table, "lm_head.weight").reason, "LM head");
  EXPECT_EQ(find(table, "model.embed_tokens.weight").reason, "embedding");
  EXPECT_EQ(find(table, "model.norm.weight").reason, "norm");
  EXPECT_EQ(find(table, "model.norm.weight").precision(), "bf16");
}

TEST(Precision, FilterNamesTensorsOrModules) {
  std::vector<Parameter> table = parameter_table(small());
  assign_precisions(table, {.filters = {"*.down_proj", "model.layers.1.mlp.up*"}});
  EXPECT_EQ(find(table, "model.layers.0.mlp.down_proj.weight").reason, "filter *.down_proj");
  EXPECT_TRUE(find(table, "model.layers.0.mlp.up_proj.weight").fp8);
  EXPECT_FALSE(find(table, "model.layers.1.mlp.up_proj.weight").fp8);
  EXPECT_EQ(error_of([&] { assign_precisions(table, {.filters = {"*.w1"}}); }),
            "filter *.w1: matches no tensor of the model");
}

TEST(Precision, AHeadOfATiedModelMayBeFiltered) {
  hf::ModelConfig config = small();
  config.tie_word_embeddings = true;
  std::vector<Parameter> table = parameter_table(config);
  EXPECT_EQ(error_of([&] { assign_precisions(table, {.filters = {"lm_head"}}); }), "no error");
}

TEST(Precision, LmHeadOnRequest) {
  std::vector<Parameter> table = parameter_table(small());
  assign_precisions(table, {.lm_head = true});
  EXPECT_TRUE(find(table, "lm_head.weight").fp8);
  hf::ModelConfig odd = small();
  odd.vocab_size = 50;
  table = parameter_table(odd);
  assign_precisions(table, {.lm_head = true});
  EXPECT_EQ(find(table, "lm_head.weight").reason, "50 rows are not a multiple of 16");
}

// torchao's thresholds; N rows, K columns.
TEST(Precision, AutoFilterDependsOnTheRecipe) {
  hf::ModelConfig config = small();
  config.hidden_size = 4096;
  config.intermediate_size = 8192;
  config.head_dim = 1024;  // q 4096, k and v 2048
  std::vector<Parameter> table = parameter_table(config);
  assign_precisions(table, {.recipe = &quant::find_recipe("tensorwise"), .auto_filter = true});
  EXPECT_TRUE(find(table, "model.layers.0.self_attn.k_proj.weight").fp8);
  assign_precisions(table, {.recipe = &quant::find_recipe("rowwise"), .auto_filter = true});
  EXPECT_EQ(find(table, "model.layers.0.self_attn.k_proj.weight").reason, "too small to gain (auto-filter)");
  EXPECT_TRUE(find(table, "model.layers.0.mlp.up_proj.weight").fp8);
  std::vector<RecipeRule> rules;
  for (const char* glob : {"*.q_proj", "*.k_proj", "*.v_proj"}) rules.push_back({glob, &quant::find_recipe("rowwise")});
  assign_precisions(table, {.recipe = &quant::find_recipe("tensorwise"), .recipes = rules, .auto_filter = true});
  EXPECT_FALSE(find(table, "model.layers.0.self_attn.k_proj.weight").fp8);
  EXPECT_TRUE(find(table, "model.layers.0.self_attn.o_proj.weight").fp8);

  config.head_dim = 256;  // k and v 512
  table = parameter_table(config);
  assign_precisions(table, {.auto_filter = true});
  EXPECT_FALSE(find(table, "model.layers.0.self_attn.k_proj.weight").fp8);
  EXPECT_FALSE(find(table, "model.layers.0.self_attn.q_proj.weight").fp8);
  EXPECT_TRUE(find(table, "model.layers.0.self_attn.o_proj.weight").fp8);
}

// The recipes of the first layer's linears under some rules, "-" for that of the model.
std::string recipes_under(const std::vector<RecipeRule>& rules) {
  std::vector<Parameter> table = parameter_table(small());
  assign_precisions(table, {.recipe = &quant::find_recipe("tensorwise"), .recipes = rules});
  std::string names;
  for (const Parameter& p : table)
    if (p.unit == 1 && p.matmul()) names += (p.recipe != nullptr ? std::string(p.recipe->name) : "-") + " ";
  return names;
}

TEST(Precision, TheLastRuleThatMatchesGivesTheRecipe) {
  const quant::Recipe *rowwise = &quant::find_recipe("rowwise"), *tensorwise = &quant::find_recipe("tensorwise");
  EXPECT_EQ(recipes_under({}), "- - - - - - - ");
  EXPECT_EQ(recipes_under({{"*.down_proj", rowwise}}), "- - - - - - rowwise ");
  EXPECT_EQ(recipes_under({{"*.1.*", rowwise}}), "- - - - - - - ");
  EXPECT_EQ(recipes_under({{"*_proj", rowwise}, {"*.o_proj.weight", tensorwise}}),
            "rowwise rowwise rowwise - rowwise rowwise rowwise ");
}

TEST(Precision, RulesThatSplitAnInputOrMatchNothingAreRefused) {
  const quant::Recipe* rowwise = &quant::find_recipe("rowwise");
  const auto error_of = [&](const std::string& glob) {
    try {
      return recipes_under({{glob, rowwise}});
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(
      error_of("*.k_proj"),
      "recipe *.k_proj=rowwise: model.layers.0.self_attn.q_proj.weight and model.layers.0.self_attn.k_proj.weight "
      "have the same input, which is cast once, so they need the same recipe");
  EXPECT_EQ(
      error_of("*.gate_proj"),
      "recipe *.gate_proj=rowwise: model.layers.0.mlp.gate_proj.weight and model.layers.0.mlp.up_proj.weight have "
      "the same input, which is cast once, so they need the same recipe");
  EXPECT_EQ(error_of("*norm*"), "recipe *norm*=rowwise: matches no linear of the model");
}

TEST(Precision, ProjectionsFuseIfAllAreFp8InTheSameGemms) {
  const auto fused = [](const PrecisionRules& options) {
    std::vector<Parameter> table = parameter_table(small());
    assign_precisions(table, options);
    fuse_projections(table);
    std::string names;
    for (const Parameter& p : table)
      if (p.fused && p.unit == 1) names += p.name.substr(p.name.rfind('.', p.name.rfind('.') - 1) + 1) + " ";
    return names;
  };
  EXPECT_EQ(fused({}), "k_proj.weight v_proj.weight up_proj.weight ");
  EXPECT_EQ(fused({.filters = {"*k_proj*"}}), "up_proj.weight ");
  EXPECT_EQ(fused({.gemms = {{"*up_proj*", {true, false, true}}}}), "k_proj.weight v_proj.weight ");
  EXPECT_EQ(fused({.gemms = {{"", {false, true, true}}}}), "k_proj.weight v_proj.weight up_proj.weight ");
  EXPECT_EQ(fused({.filters = {"*"}}), "");
}

}  // namespace
}  // namespace fp8::model
