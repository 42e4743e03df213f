// Configurations: the golden models with old and new keys, defaults, error messages, and writing JSON.
#include "fp8/hf/config.h"

#include <gtest/gtest.h>

#include "fp8/json/json.h"
#include "fp8_test.h"

namespace fp8::hf {
namespace {

const std::string kModels = "tests/golden/models/";

ModelConfig parse(const std::string& text) { return parse_config(json::parse(text, "config.json"), "config.json"); }
ModelConfig load(const std::string& file) { return parse_config(json::parse_file(kModels + file), file); }
std::string config_refusal(const std::string& text) {
  return test::error_of([&] { parse(text); });
}

TEST(ModelConfig, reads_llama_with_llama3_rope) {
  const ModelConfig c = load("llama3/hf/config.json");
  EXPECT_EQ(c.family, Family::llama);
  EXPECT_EQ(c.vocab_size, 256);
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.intermediate_size, 176);
  EXPECT_EQ(c.num_hidden_layers, 2);
  EXPECT_EQ(c.num_attention_heads, 4);
  EXPECT_EQ(c.num_key_value_heads, 2);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_EQ(c.rope, (Rope{RopeType::llama3, 500000, 8, 1, 4, 16}));
  EXPECT_EQ(c.max_position_embeddings, 128);
  EXPECT_FALSE(c.tie_word_embeddings || c.attention_bias_qkv || c.attention_bias_o || c.mlp_bias || c.qk_norm);
  EXPECT_EQ(c.bos_token_id, 1);
  EXPECT_EQ(c.eos_token_ids, std::vector<std::int64_t>{2});
}

TEST(ModelConfig, both_spellings_are_the_same_model) {
  EXPECT_TRUE(same_model(load("llama3/hf/config.json"), load("llama3/hf/config.v4.json")));
  EXPECT_FALSE(same_model(load("llama3/hf/config.json"), load("llama-tied/hf/config.json")));
}

TEST(ModelConfig, reads_family_specific_keys) {
  EXPECT_TRUE(load("llama-tied/hf/config.json").tie_word_embeddings);
  const ModelConfig qwen2 = load("qwen2/hf/config.json");
  EXPECT_TRUE(qwen2.attention_bias_qkv);
  EXPECT_FALSE(qwen2.attention_bias_o);
  EXPECT_EQ(qwen2.head_dim, 16);
  EXPECT_FALSE(qwen2.sliding_window);
  const ModelConfig qwen3 = load("qwen3/hf/config.json");
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_EQ(qwen3.head_dim, 32);
  EXPECT_EQ(qwen3.query_size(), 128);
  EXPECT_EQ(qwen3.key_value_size(), 64);
  EXPECT_TRUE(qwen3.eos_token_ids.empty());
}

TEST(ModelConfig, absent_keys_have_the_defaults_of_transformers) {
  const ModelConfig mistral = parse(R"({"model_type": "mistral", "head_dim": null})");
  EXPECT_EQ(mistral.num_key_value_heads, 8);
  EXPECT_EQ(mistral.head_dim, 128);
  EXPECT_EQ(mistral.sliding_window, 4096);
  EXPECT_EQ(mistral.rope, Rope{});
  EXPECT_NO_THROW(mistral.check_sequence_length(4096));
  EXPECT_NE(test::error_of([&] { mistral.check_sequence_length(4097); }).find("sliding window of 4096"),
            std::string::npos);
  EXPECT_FALSE(parse(R"({"model_type": "mistral", "sliding_window": null})").sliding_window);

  EXPECT_EQ(parse(R"({"model_type": "llama", "num_attention_heads": 16})").num_key_value_heads, 16);
  EXPECT_EQ(parse(R"({"model_type": "llama", "num_attention_heads": 16})").head_dim, 256);
  EXPECT_EQ(parse(R"({"model_type": "qwen3", "hidden_size": 2048})").head_dim, 128);
  EXPECT_EQ(parse(R"({"model_type": "qwen2"})").vocab_size, 151936);
}

TEST(ModelConfig, qwen_slides_only_if_enabled) {
  const std::string head = R"({"model_type": "qwen2", "num_hidden_layers": 32, "sliding_window": 100, )";
  EXPECT_FALSE(parse(head + R"("use_sliding_window": false})").sliding_window);
  EXPECT_EQ(parse(head + R"("use_sliding_window": true, "max_window_layers": 28})").sliding_window, 100);
  EXPECT_FALSE(parse(head + R"("use_sliding_window": true, "max_window_layers": 32})").sliding_window);
  EXPECT_FALSE(parse(head + R"("use_sliding_window": true, "layer_types": ["full_attention"]})").sliding_window);
}

// A Qwen2 of four layers with these entries of layer_types.
std::string layered(const std::string& types, const std::string& more) {
  return R"({"model_type": "qwen2", "num_hidden_layers": 4, "layer_types": [)" + types + "], " + more + "}";
}

TEST(ModelConfig, layers_may_slide_one_by_one) {
  const std::string full = R"("full_attention", )", slide = R"("sliding_attention")",
                    window = R"("sliding_window": 9, )";
  const std::string on = window + R"("use_sliding_window": true)";
  const ModelConfig c = parse(layered(full + full + slide + ", " + slide, on));
  EXPECT_EQ(c.sliding_window, 9);
  const json::Object out = to_json(c).as_object();
  EXPECT_EQ(out.at("layer_types"), c.source.as_object().at("layer_types"));
  EXPECT_EQ(out.at("max_window_layers"), json::Value(2));
  EXPECT_EQ(out.at("sliding_window"), json::Value(9));
  EXPECT_EQ(out.at("use_sliding_window"), json::Value(true));
  EXPECT_EQ(
      parse(R"({"model_type": "mistral", "num_hidden_layers": 1, "layer_types": [)" + slide + "]}").sliding_window,
      4096);
  EXPECT_EQ(config_refusal(layered(full + slide, on)), "config.json: \"layer_types\" has 2 entries for 4 layers");
  EXPECT_EQ(config_refusal(layered(full + full + full + slide, window + R"("use_sliding_window": false)")),
            "config.json: \"layer_types\" has sliding_attention, but the other keys of qwen2 give no sliding window");
  // Without layer_types, the last layers slide.
  const ModelConfig late = parse(R"({"model_type": "qwen2", "num_hidden_layers": 30, "use_sliding_window": true})");
  EXPECT_EQ(to_json(late).as_object().at("max_window_layers"), json::Value(28));
}

TEST(ModelConfig, biases_and_token_lists) {
  const ModelConfig llama = parse(R"({"model_type": "llama", "attention_bias": true, "mlp_bias": true,
                                 "eos_token_id": [7, 9]})");
  EXPECT_TRUE(llama.attention_bias_qkv && llama.attention_bias_o && llama.mlp_bias);
  EXPECT_EQ(llama.eos_token_ids, (std::vector<std::int64_t>{7, 9}));
  const ModelConfig qwen3 = parse(R"({"model_type": "qwen3", "attention_bias": true})");
  EXPECT_TRUE(qwen3.attention_bias_qkv && qwen3.attention_bias_o);
  EXPECT_FALSE(qwen3.mlp_bias);
}

TEST(ModelConfig, linear_rope_with_the_old_keys) {
  const ModelConfig c =
      parse(R"({"model_type": "llama", "rope_theta": 5000, "rope_scaling": {"type": "linear", "factor": 2}})");
  EXPECT_EQ(c.rope, (Rope{.type = RopeType::linear, .theta = 5000, .factor = 2}));
}

TEST(ModelConfig, reads_experts_of_mixtral) {
  const ModelConfig c = load("mixtral/hf/config.json");
  EXPECT_EQ(c.family, Family::mixtral);
  EXPECT_EQ(c.experts, (ExpertsConfig{.count = 4, .per_token = 2, .intermediate_size = 96}));
  EXPECT_EQ(c.intermediate_size, 96);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_FALSE(c.sliding_window || c.qk_norm || c.attention_bias_qkv);
  EXPECT_EQ(c.sparse_layers(), c.num_hidden_layers);
  EXPECT_TRUE(same_model(c, load("mixtral/hf/config.v4.json")));
  EXPECT_EQ(load("wide-moe/hf/config.json").experts->count, 6);
}

const std::string kSparse = R"({"model_type": "qwen3_moe", "num_hidden_layers": 6, )";

TEST(ModelConfig, reads_experts_of_qwen3_moe) {
  const ModelConfig c = parse(kSparse + R"("num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
    "norm_topk_prob": true, "decoder_sparse_step": 2, "mlp_only_layers": [5, 1, 5], "head_dim": 16})");
  EXPECT_EQ(c.experts, (ExpertsConfig{7, 3, 48, true, 2, {1, 5}}));
  EXPECT_TRUE(c.qk_norm);
  std::string sparse;
  for (std::int64_t i = 0; i < 6; ++i) sparse += c.is_sparse(i) ? "s" : "d";
  EXPECT_EQ(sparse, "dddsdd");
  EXPECT_EQ(c.sparse_layers(), 1);
  EXPECT_EQ(parse(kSparse + R"("decoder_sparse_step": 7})").sparse_layers(), 0);
  EXPECT_FALSE(parse(kSparse + R"("norm_topk_prob": false})").experts->normalize);
  EXPECT_TRUE(parse(kSparse + R"("attention_bias": true})").attention_bias_o);
}

TEST(ModelConfig, both_names_of_the_number_of_experts_are_read) {
  for (const char* type : {"mixtral", "qwen3_moe"})
    for (const char* key : {"num_experts", "num_local_experts"}) {
      const ModelConfig c =
          parse(R"({"model_type": ")" + std::string(type) + R"(", ")" + key + R"(": 16, "num_experts_per_tok": 4})");
      EXPECT_EQ(c.experts->count, 16);
      const json::Object out = to_json(c).as_object();
      const bool qwen = c.family == Family::qwen3_moe;
      EXPECT_EQ(out.contains("num_experts"), qwen);
      EXPECT_EQ(out.contains("num_local_experts"), !qwen);
    }
}

TEST(ModelConfig, experts_have_the_defaults_of_transformers) {
  const ModelConfig mixtral = parse(R"({"model_type": "mixtral"})");
  EXPECT_EQ(mixtral.experts, (ExpertsConfig{.count = 8, .per_token = 2, .intermediate_size = 14336}));
  EXPECT_EQ(mixtral.rms_norm_eps, 1e-5);
  EXPECT_EQ(mixtral.rope.theta, 1e6);
  EXPECT_EQ(mixtral.num_key_value_heads, 8);
  EXPECT_FALSE(mixtral.sliding_window);
  EXPECT_EQ(parse(R"({"model_type": "mixtral", "sliding_window": 64})").sliding_window, 64);
  const ModelConfig qwen = parse(R"({"model_type": "qwen3_moe"})");
  EXPECT_EQ(qwen.experts, (ExpertsConfig{.count = 128, .per_token = 8, .intermediate_size = 768, .normalize = false}));
  EXPECT_EQ(qwen.head_dim, 64);
  EXPECT_EQ(qwen.rope.theta, 10000);
  EXPECT_FALSE(qwen.sliding_window);
  // Unlike dense models of Qwen, all its layers have the window.
  EXPECT_EQ(parse(kSparse + R"("use_sliding_window": true, "max_window_layers": 6})").sliding_window, 4096);
}

const std::string kSizes = R"("vocab_size": 8, "hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 4,
    "num_attention_heads": 1, "num_key_value_heads": null, "head_dim": null, "rms_norm_eps": 1e-6, )";
const std::string kBareQwen = R"({"model_type": "qwen3_moe", )" + kSizes;

// Keys of every family that have defaults, and none that decides on sizes.
const std::string kOthers = R"("hidden_act": "silu", "max_position_embeddings": 8,
  "tie_word_embeddings": true, "initializer_range": 0.1, )";

TEST(ModelConfig, missing_keys_are_listed_with_their_defaults) {
  using List = std::vector<std::string>;
  const std::string qwen = kBareQwen + kOthers;
  EXPECT_EQ(defaulted_keys(parse(qwen + R"("num_local_experts": 9, "rope_theta": 1e6})")),
            (List{"num_experts_per_tok 8", "moe_intermediate_size 768", "norm_topk_prob false", "decoder_sparse_step 1",
                  "mlp_only_layers []", "attention_bias false", "use_sliding_window false"}));
  EXPECT_EQ(defaulted_keys(parse(qwen + R"("num_experts_per_tok": 2, "moe_intermediate_size": 8,
    "norm_topk_prob": true, "decoder_sparse_step": 2, "rope_scaling": {"type": "linear", "factor": 2},
    "mlp_only_layers": [], "attention_bias": true, "use_sliding_window": true})")),
            (List{"num_experts 128", "rope_theta 10000", "sliding_window 4096"}));
  EXPECT_EQ(defaults_note(parse(R"({"model_type": "mixtral", )" + kSizes + kOthers +
                                R"("rope_parameters": {"rope_theta": 5e5}})")),
            "lacks keys, defaults of mixtral are used: num_local_experts 8, num_experts_per_tok 2");
  EXPECT_EQ(defaulted_keys(parse(R"({"model_type": "qwen2", "use_sliding_window": true, )" + kSizes + kOthers +
                                 R"("rope_theta": 1e6})")),
            (List{"sliding_window 4096", "max_window_layers 28"}));
  EXPECT_EQ(defaulted_keys(parse(R"({"model_type": "llama"})")),
            (List{"vocab_size 32000", "hidden_size 4096", "intermediate_size 11008", "num_hidden_layers 32",
                  "num_attention_heads 32", "hidden_act silu", "rms_norm_eps 1e-06", "rope_theta 10000",
                  "max_position_embeddings 2048", "tie_word_embeddings false", "initializer_range 0.02",
                  "attention_bias false", "mlp_bias false"}));
  EXPECT_EQ(defaulted_keys(parse(R"({"model_type": "mistral", )" + kSizes + kOthers + R"("rope_theta": 1e6})")),
            (List{"sliding_window 4096"}));
  EXPECT_EQ(
      defaulted_keys(parse(R"({"model_type": "qwen3"})")),
      (List{"vocab_size 151936", "hidden_size 4096", "intermediate_size 22016", "num_hidden_layers 32",
            "num_attention_heads 32", "num_key_value_heads 32", "head_dim 128", "hidden_act silu", "rms_norm_eps 1e-06",
            "rope_theta 10000", "max_position_embeddings 32768", "tie_word_embeddings false", "initializer_range 0.02",
            "attention_bias false", "use_sliding_window false"}));
  EXPECT_EQ(defaults_note(load("mixtral/hf/config.json")), "");
}

TEST(ModelConfig, notes_name_what_only_transformers_trains_with) {
  using List = std::vector<std::string>;
  const auto notes = [](const std::string& keys) { return training_notes(parse(kBareQwen + keys)); };
  EXPECT_EQ(notes(R"("output_router_logits": false, "attention_dropout": 0.0})"), List{});
  EXPECT_EQ(notes(R"("router_aux_loss_coef": 0.02, "output_router_logits": null})"), List{});
  EXPECT_EQ(notes(R"("router_aux_loss_coef": 0, "output_router_logits": true})"), List{});
  EXPECT_EQ(notes(R"("output_router_logits": true, "mlp_only_layers": [0, 1, 2, 3]})"), List{});
  const auto balanced = [](const std::string& coefficient, const std::string& factor) {
    return "with output_router_logits transformers adds its balancing loss in training, with coefficient " +
           coefficient + "; fp8-step adds one of the same size with --aux-loss " + factor;
  };
  EXPECT_EQ(notes(R"("output_router_logits": true})"), List{balanced("0.001", "0.002")});
  EXPECT_EQ(
      notes(R"("output_router_logits": true, "router_aux_loss_coef": 0.02, "num_experts_per_tok": 3,
    "mlp_only_layers": [1], "attention_dropout": 0.1})"),
      (List{balanced("0.02", "0.02"), "attention_dropout 0.1 is ignored: training here has no dropout of attention"}));
}

TEST(ModelConfig, linears_of_experts_are_in_the_order_of_computation) {
  const ModelConfig mixtral = load("mixtral/hf/config.json");
  const std::vector<std::string> of_mixtral = linear_modules(mixtral);
  ASSERT_EQ(of_mixtral.size(), 2U * (4 + 3 * 4));
  EXPECT_EQ(of_mixtral[4], "model.layers.0.block_sparse_moe.experts.0.w1");
  EXPECT_EQ(of_mixtral[5], "model.layers.0.block_sparse_moe.experts.0.w3");
  EXPECT_EQ(of_mixtral[12], "model.layers.0.block_sparse_moe.experts.0.w2");
  EXPECT_EQ(linear_extent(mixtral, of_mixtral[5]), (std::array<std::int64_t, 2>{96, 64}));
  EXPECT_EQ(linear_extent(mixtral, of_mixtral[12]), (std::array<std::int64_t, 2>{64, 96}));
  const ModelConfig qwen = parse(kSparse + R"("num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 48,
    "intermediate_size": 96, "hidden_size": 64, "num_attention_heads": 4, "decoder_sparse_step": 6})");
  const std::vector<std::string> of_qwen = linear_modules(qwen);
  ASSERT_EQ(of_qwen.size(), 5U * 7 + 4 + 6);
  EXPECT_EQ(of_qwen[34], "model.layers.4.mlp.down_proj");
  EXPECT_EQ(linear_extent(qwen, of_qwen[34]), (std::array<std::int64_t, 2>{64, 96}));
  EXPECT_EQ(of_qwen.back(), "model.layers.5.mlp.experts.1.down_proj");
  EXPECT_EQ(linear_extent(qwen, of_qwen.back()), (std::array<std::int64_t, 2>{64, 48}));
  EXPECT_EQ(linear_extent(qwen, of_qwen[39]), (std::array<std::int64_t, 2>{48, 64}));
}

struct Refusal {
  const char* json;
  const char* message;
};

class ConfigRefuses : public ::testing::TestWithParam<Refusal> {};
TEST_P(ConfigRefuses, by_name) {
  EXPECT_EQ(config_refusal(GetParam().json), std::string("config.json: ") + GetParam().message);
}
INSTANTIATE_TEST_SUITE_P(
    All, ConfigRefuses,
    ::testing::Values(
        Refusal{"[1]", "not an object but array"}, Refusal{"{}", "\"model_type\" is missing"},
        Refusal{R"({"model_type": "gpt2"})",
                "model_type \"gpt2\" is not supported (llama, mistral, qwen2, qwen3, "
                "mixtral, qwen3_moe are)"},
        Refusal{R"({"model_type": "llama", "hidden_act": "gelu"})", "activation \"gelu\" is not supported (silu is)"},
        Refusal{R"({"model_type": "qwen2", "layer_types": ["full_attention", "chunked_attention"]})",
                "\"layer_types\": only full_attention and sliding_attention are supported, found "
                "\"chunked_attention\""},
        Refusal{R"({"model_type": "llama", "rope_theta": 5e5, "rope_parameters": {"rope_theta": 1e6}})",
                "rope_theta 5e+05 differs from that of rope_parameters or rope_scaling, 1e+06"},
        Refusal{R"({"model_type": "llama", "rope_parameters": {"rope_type": "linear", "factor": 2},
                    "rope_scaling": {"rope_type": "linear", "factor": 4}})",
                "rope_parameters and rope_scaling differ"},
        Refusal{R"({"model_type": "qwen2", "rope_parameters": {"full_attention": {"rope_theta": 1e6}}})",
                "rope_parameters: settings for each type of layer are not supported"},
        Refusal{R"({"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 4}})",
                "rope type \"yarn\" is not supported (default, linear and llama3 are)"},
        Refusal{R"({"model_type": "llama", "rope_parameters": {"rope_type": "linear"}})",
                "rope_parameters: \"factor\" is missing"},
        Refusal{R"({"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8.0}})",
                "rope_scaling: \"low_freq_factor\" is missing"},
        Refusal{R"({"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4,
                    "high_freq_factor": 4, "original_max_position_embeddings": 8}})",
                "rope_scaling: low_freq_factor must be below high_freq_factor"},
        Refusal{R"({"model_type": "llama", "partial_rotary_factor": 0.5})",
                "\"partial_rotary_factor\" below 1 is not supported"},
        Refusal{R"({"model_type": "llama", "quantization_config": {}})",
                "\"quantization_config\": quantized weights are not supported; use the original model"},
        Refusal{R"({"model_type": "llama", "hidden_size": 0})", "\"hidden_size\" is 0, must be from 1 to 16777216"},
        Refusal{R"({"model_type": "llama", "num_hidden_layers": 10001})",
                "\"num_hidden_layers\" is 10001, must be from 1 to 10000"},
        Refusal{R"({"model_type": "llama", "num_key_value_heads": 5})",
                "num_key_value_heads 5 does not divide num_attention_heads 32"},
        Refusal{R"({"model_type": "llama", "hidden_size": 100})",
                "num_attention_heads 32 does not divide hidden_size 100, and there is no head_dim"},
        Refusal{R"({"model_type": "llama", "head_dim": 15})", "head_dim 15 is odd, rope needs pairs"},
        Refusal{R"({"model_type": "llama", "head_dim": 16777216})", "num_attention_heads x head_dim is above 16777216"},
        Refusal{R"({"model_type": "llama", "hidden_size": 16777216, "vocab_size": 16777216})",
                "the model would have more than 2^50 parameters"},
        Refusal{R"({"model_type": "qwen3_moe", "num_experts": 4096, "moe_intermediate_size": 16777216})",
                "the model would have more than 2^50 parameters"},
        Refusal{R"({"model_type": "mixtral", "num_local_experts": 4096, "hidden_size": 16777216})",
                "the model would have more than 2^50 parameters"},
        Refusal{R"({"model_type": "llama", "rms_norm_eps": -1})", "\"rms_norm_eps\" is -1, must be from 0 to 1"},
        Refusal{R"({"model_type": "llama", "eos_token_id": [1, "x"]})",
                "\"eos_token_id\" holds \"x\", not a token id"}));

INSTANTIATE_TEST_SUITE_P(
    Experts, ConfigRefuses,
    ::testing::Values(
        Refusal{R"({"model_type": "qwen2_moe"})",
                "model_type \"qwen2_moe\": shared experts are not supported (those of mixtral and qwen3_moe are)"},
        Refusal{R"({"model_type": "deepseek_v3", "n_shared_experts": 1})",
                "\"n_shared_experts\": shared experts are not supported (those of mixtral and qwen3_moe are)"},
        Refusal{R"({"model_type": "qwen3_moe", "shared_expert_intermediate_size": 8})",
                "\"shared_expert_intermediate_size\": shared experts are not supported (those of mixtral and "
                "qwen3_moe are)"},
        Refusal{R"({"model_type": "llama", "num_experts": 8})",
                "\"num_experts\": model_type \"llama\" has no experts (mixtral and qwen3_moe have)"},
        Refusal{R"({"model_type": "qwen3", "num_local_experts": 1})",
                "\"num_local_experts\": model_type \"qwen3\" has no experts (mixtral and qwen3_moe have)"},
        Refusal{R"({"model_type": "mixtral", "num_experts_per_tok": 9})",
                "num_experts_per_tok 9 is above the number of experts, 8"},
        Refusal{R"({"model_type": "mixtral", "num_local_experts": 0})",
                "\"num_local_experts\" is 0, must be from 1 to 4096"},
        Refusal{R"({"model_type": "mixtral", "num_experts": 4, "num_local_experts": 8})",
                "num_experts 4 and num_local_experts 8 differ"},
        Refusal{R"({"model_type": "mixtral", "router_jitter_noise": 0.01})",
                "\"router_jitter_noise\": noise in the router's input is not supported"},
        Refusal{R"({"model_type": "mixtral", "hidden_size": 64, "num_local_experts": 4096, "num_hidden_layers": 33})",
                "the model would have more than 2^17 experts"},
        Refusal{R"({"model_type": "qwen3_moe", "mlp_only_layers": [24]})",
                "\"mlp_only_layers\" holds 24, not a layer from 0 to 23"},
        Refusal{R"({"model_type": "qwen3_moe", "mlp_only_layers": ["x"]})",
                "\"mlp_only_layers\" holds \"x\", not a layer from 0 to 23"},
        Refusal{R"({"model_type": "qwen3_moe", "mlp_only_layers": 3})", "\"mlp_only_layers\" is not an array"},
        Refusal{R"({"model_type": "qwen3_moe", "decoder_sparse_step": 0})",
                "\"decoder_sparse_step\" is 0, must be from 1 to 10000"}));

TEST(ModelConfig, wrong_types_are_named) {
  EXPECT_NE(config_refusal(R"({"model_type": "llama", "hidden_size": "big"})").find("\"hidden_size\""),
            std::string::npos);
  EXPECT_NE(config_refusal(R"({"model_type": "llama", "hidden_size": 64.5})").find("\"hidden_size\""),
            std::string::npos);
  EXPECT_NE(config_refusal(R"({"model_type": "llama", "tie_word_embeddings": 1})").find("tie_word"), std::string::npos);
  EXPECT_NE(config_refusal(R"({"model_type": "llama", "rope_scaling": 3})").find("rope_scaling"), std::string::npos);
}

TEST(ModelConfig, json_reads_back_to_the_same_model) {
  for (const char* name :
       {"llama3/hf/config.json", "llama3/hf/config.v4.json", "llama-tied/hf/config.json", "qwen2/hf/config.json",
        "qwen3/hf/config.json", "mixtral/hf/config.json", "mixtral/hf/config.v4.json"}) {
    const ModelConfig c = load(name);
    const json::Value out = to_json(c);
    const ModelConfig back = parse_config(out, name);
    EXPECT_TRUE(same_model(c, back)) << name;
    EXPECT_EQ(to_json(back), out) << name;
  }
  for (const char* text : {R"({"model_type": "mistral"})",
                           R"({"model_type": "qwen2", "use_sliding_window": true, "max_window_layers": 3})",
                           R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2}})",
                           R"({"model_type": "qwen3", "attention_bias": true, "eos_token_id": [3, 4]})",
                           R"({"model_type": "qwen3_moe", "use_sliding_window": true, "mlp_only_layers": [3, 1]})",
                           R"({"model_type": "qwen3_moe", "norm_topk_prob": true, "decoder_sparse_step": 3})"}) {
    const ModelConfig c = parse(text);
    EXPECT_TRUE(same_model(c, parse_config(to_json(c), "back"))) << text;
  }
}

// What transformers 5 and 4 read under names of their own, in each family and kind of rope.
TEST(ModelConfig, both_spellings_can_be_written) {
  const std::string llama3 = R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                "original_max_position_embeddings": 16)";
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe"})
    for (const std::string& scaling : {std::string(), std::string(R"("type": "linear", "factor": 8.0)"), llama3}) {
      const std::string text = R"({"model_type": ")" + std::string(family) + R"(", "torch_dtype": "float16",
          "transformers_version": "4.35.2", "rope_theta": 5e5, "rope_scaling": )" +
                               (scaling.empty() ? "null" : "{" + scaling + "}") + "}";
      const ModelConfig c = parse(text);
      json::Value both = to_json(c);
      add_version_4_keys(both.as_object());
      EXPECT_TRUE(same_model(c, parse_config(both, "back"))) << text;
      const json::Object& out = both.as_object();
      EXPECT_EQ(out.at("rope_theta"), json::Value(5e5));
      EXPECT_EQ(out.at("rope_scaling"), c.source.as_object().at("rope_scaling")) << text;
      EXPECT_EQ(out.at("rope_parameters").as_object().at("rope_theta"), json::Value(5e5));
      EXPECT_EQ(out.at("dtype"), json::Value("float16"));
      EXPECT_EQ(out.at("torch_dtype"), json::Value("float16"));
      EXPECT_EQ(out.at("transformers_version"), json::Value("5.0.0"));
      for (const char* key : {"num_experts", "num_local_experts"}) EXPECT_EQ(out.contains(key), c.experts.has_value());
      EXPECT_EQ(to_json(parse_config(both, "back")).as_object().contains("rope_scaling"), false);
    }
}

TEST(ModelConfig, json_without_a_source_is_complete) {
  ModelConfig c = load("qwen3/hf/config.json");
  c.source = {};
  c.sliding_window = 64;
  const json::Value out = to_json(c);
  EXPECT_EQ(out.as_object().at("architectures"), json::parse(R"(["Qwen3ForCausalLM"])", "expected"));
  EXPECT_TRUE(same_model(c, parse_config(out, "back")));
}

TEST(ModelConfig, json_has_the_new_keys_and_keeps_unknown_ones) {
  const json::Object out = to_json(load("llama3/hf/config.v4.json")).as_object();
  EXPECT_FALSE(out.contains("rope_theta") || out.contains("rope_scaling") || out.contains("torch_dtype"));
  EXPECT_EQ(out.at("dtype"), json::Value("bfloat16"));
  EXPECT_EQ(out.at("pretraining_tp"), json::Value(1));
  EXPECT_EQ(out.at("transformers_version"), json::Value("4.45.2"));
  const json::Value source = json::parse_file(kModels + "llama3/hf/config.json");
  EXPECT_EQ(to_json(load("llama3/hf/config.json")), source);
}

}  // namespace
}  // namespace fp8::hf
