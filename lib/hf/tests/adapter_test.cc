// PEFT adapters: the golden ones, settings and tensors that are refused by name, and the key of a checkpoint's
// configuration.
#include "fp8/hf/adapter.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "adapter_targets.h"
#include "fp8/hf/folder.h"
#include "fp8/json/json.h"
#include "fp8_test.h"
#include "safetensors_text.h"

namespace fp8::hf {
namespace {

using test::error_of;
using test::TemporaryFolder;

// One layer of width 4.
ModelConfig tiny() {
  return parse_config(json::parse(R"({"model_type": "llama", "vocab_size": 8, "hidden_size": 4, "intermediate_size": 6,
    "num_hidden_layers": 1, "num_attention_heads": 2})",
                                  "tiny"),
                      "tiny");
}

const std::string kNone = "no error";
const std::string kSettings = R"({"peft_type": "LORA", "r": 1, "lora_alpha": 2, "target_modules": ["q_proj"])";
const std::string kQ = "base_model.model.model.layers.0.self_attn.q_proj.lora_";

std::string entry(const std::string& name, const std::string& shape, int begin, int end) {
  return "\"" + name + R"(":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[)" + std::to_string(begin) + "," +
         std::to_string(end) + "]}";
}

// An adapter of rank 1 on q.
const std::string kTensors =
    safetensors("{" + entry(kQ + "A.weight", "[1,4]", 0, 16) + "," + entry(kQ + "B.weight", "[4,1]", 16, 32) + "}",
                std::string(32, 0));

std::string adapter_refusal(const std::string& settings, const std::string& tensors = kTensors) {
  const TemporaryFolder folder;
  folder.write("adapter_config.json", settings);
  folder.write("adapter_model.safetensors", tensors);
  std::string message = error_of([&] { AdapterFolder(folder.path(), tiny()); });
  if (message.starts_with(folder.path())) message = message.substr(folder.path().size() + 1);
  return message;
}

TEST(AdapterFolder, ReadsTheGoldenAdapters) {
  const ModelConfig model = Folder("tests/golden/models/llama3/hf").config();
  const AdapterFolder init("tests/golden/lora/llama3/init", model), final("tests/golden/lora/llama3/final", model);
  EXPECT_EQ(init.lora(), (LoraConfig{8, 16, false, 0, linear_modules(model)}));
  EXPECT_EQ(init.lora().scaling(), 2);
  std::vector<float> a(2 * 64), b(static_cast<std::size_t>(model.query_size()) * 8, 1.0f);
  init.read_rows("model.layers.1.self_attn.q_proj.lora_A.weight", 3, 2, a);
  init.read_rows("model.layers.1.self_attn.q_proj.lora_B.weight", 0, model.query_size(), b);
  for (const float v : a) EXPECT_TRUE(v != 0 && std::fabs(v) <= 0.125f) << v;
  for (const float v : b) EXPECT_EQ(v, 0);
  EXPECT_NE(init.digest(), final.digest());
  EXPECT_EQ(init.digest(), AdapterFolder("tests/golden/lora/llama3/init", model).digest());
}

TEST(AdapterFolder, NeedsBothFiles) {
  const TemporaryFolder folder;
  const auto refusal_of = [&] { return error_of([&] { AdapterFolder(folder.path(), tiny()); }); };
  EXPECT_EQ(refusal_of(), folder.path() + "/adapter_config.json: missing; not the folder of a PEFT adapter");
  folder.write("adapter_config.json", kSettings + "}");
  EXPECT_EQ(refusal_of(), folder.path() + "/adapter_model.safetensors: missing");
  folder.write("adapter_model.bin", "x");
  EXPECT_EQ(refusal_of(), folder.path() + "/adapter_model.safetensors: missing; only safetensors files are read");
  EXPECT_EQ(error_of([&] { AdapterFolder(folder.path() + "/adapter_model.bin", tiny()); }),
            folder.path() + "/adapter_model.bin: not a folder");
}

TEST(AdapterFolder, RefusesSettingsByName) {
  const std::string config = "adapter_config.json: ";
  EXPECT_EQ(adapter_refusal(kSettings + "}"), kNone);
  EXPECT_EQ(adapter_refusal("[]"), "adapter_config.json: not an object");
  EXPECT_EQ(adapter_refusal(R"({"peft_type": "IA3"})"), config + "peft_type \"IA3\" is not supported (LORA is)");
  EXPECT_EQ(adapter_refusal(R"({"peft_type": "LORA", "lora_alpha": 2})"), config + "\"r\" is missing");
  EXPECT_EQ(adapter_refusal(R"({"peft_type": "LORA", "r": 0, "lora_alpha": 2})"),
            config + "\"r\" is 0, must be from 1 to 65536");
  EXPECT_EQ(adapter_refusal(R"({"peft_type": "LORA", "r": 1, "lora_alpha": 0, "target_modules": ["q_proj"]})"),
            config + "alpha 0 is not above 0 and at most 1e+06");
  EXPECT_EQ(adapter_refusal(kSettings + R"(, "lora_dropout": 1})"), config + "dropout 1 is not below 1");
  EXPECT_EQ(adapter_refusal(kSettings + R"(, "lora_dropout": 0.999999999})"),
            config + "dropout 0.999999999 is 1 in f32");
  EXPECT_EQ(adapter_refusal(kSettings + R"(, "bias": "all"})"),
            config + "\"bias\": \"all\": trained biases are not supported");
  EXPECT_EQ(adapter_refusal(kSettings + R"(, "init_lora_weights": "pissa"})"),
            config + "\"init_lora_weights\": \"pissa\" is not supported: it changes the model");
  EXPECT_EQ(adapter_refusal(kSettings + R"(, "init_lora_weights": "gaussian", "use_dora": false, "rank_pattern": {}})"),
            kNone);
  for (const char* setting : {R"("use_dora": true)", R"("rank_pattern": {"q_proj": 3})", R"("modules_to_save": ["x"])",
                              R"("lora_bias": true)", R"("trainable_token_indices": [1])", R"("use_mora": true)",
                              R"("new": 0)", R"("velora_config": {"x": 1})"}) {
    const std::string key = std::string(setting).substr(0, std::string(setting).find(':'));
    EXPECT_EQ(adapter_refusal(kSettings + ", " + setting + "}"), config + key + " is not supported");
  }
}

TEST(AdapterFolder, IgnoresSettingsWithoutEffect) {
  EXPECT_EQ(
      adapter_refusal(kSettings + R"(, "megatron_core": "megatron.core", "qalora_group_size": 16, "loftq_config": {},
    "eva_config": {"rho": 2.0}, "auto_mapping": {"x": "y"}, "peft_version": "0.21.2", "ensure_weight_tying": true,
    "use_mora": false, "new": null, "newer": "", "newest": [], "task_type": "CAUSAL_LM"})"),
      kNone);
}

// The linears of tiny() with two layers that settings select, as "layer.linear".
std::string targets_of(const std::string& settings) {
  ModelConfig model = tiny();
  model.num_hidden_layers = 2;
  std::string out;
  std::string error = error_of([&] {
    const json::Value value = json::parse("{" + settings + "}", "s");
    for (const std::string& name : target_modules(Keys(value.as_object(), "s"), model))
      out += (out.empty() ? "" : " ") + name.substr(13, 2) + name[name.rfind('.') + 1];
  });
  return error == kNone ? out : error;
}

// The expected modules are those of check_target_module_exists in PEFT 0.21.
TEST(TargetModules, AreThoseOfPeft) {
  const std::string all = "0.q 0.k 0.v 0.o 0.g 0.u 0.d 1.q 1.k 1.v 1.o 1.g 1.u 1.d";
  EXPECT_EQ(targets_of(R"("target_modules": ["q_proj", "mlp.up_proj", "_proj", "x"])"), "0.q 0.u 1.q 1.u");
  EXPECT_EQ(targets_of(R"("target_modules": ["model.layers.1.mlp.up_proj"])"), "1.u");
  EXPECT_EQ(targets_of(R"("target_modules": "all-linear")"), all);
  EXPECT_EQ(
      targets_of(R"("target_modules": "All-Linear", "exclude_modules": ["v_proj", "model.layers.0.mlp.up_proj"])"),
      "0.q 0.k 0.o 0.g 0.d 1.q 1.k 1.o 1.g 1.u 1.d");
  EXPECT_EQ(targets_of(R"("target_modules": ".*\\.(q|k)_proj")"), "0.q 0.k 1.q 1.k");
  EXPECT_EQ(targets_of(R"("target_modules": ".*_proj", "exclude_modules": ".*0.*|.*mlp.*")"), "1.q 1.k 1.v 1.o");
  EXPECT_EQ(targets_of(R"("target_modules": ["q_proj"], "exclude_modules": "")"), "0.q 1.q");
  EXPECT_EQ(targets_of(R"("target_modules": ["q_proj"], "layers_to_transform": 1)"), "1.q");
  EXPECT_EQ(targets_of(R"("target_modules": ["q_proj", "k_proj"], "layers_to_transform": [0, 7])"), "0.q 0.k");
  EXPECT_EQ(targets_of(R"("target_modules": ["q_proj"], "layers_to_transform": [])"), "0.q 1.q");
  EXPECT_EQ(targets_of(R"("target_modules": ["q_proj"], "layers_to_transform": [1], "layers_pattern": "layers")"),
            "1.q");
  EXPECT_EQ(
      targets_of(R"("target_modules": ["q_proj"], "layers_to_transform": [1], "layers_pattern": ["h", "layers"])"),
      "1.q");
  // Full names are not restricted to layers.
  EXPECT_EQ(targets_of(R"("target_modules": ["model.layers.0.self_attn.q_proj", "k_proj"], "layers_to_transform": 1)"),
            "0.q 1.k");
}

// Two layers of Mixtral with two experts; the names of experts are shortened to "layer.expert.linear".
std::string expert_targets_of(const std::string& settings) {
  ModelConfig model = tiny();
  model.family = Family::mixtral;
  model.num_hidden_layers = 2;
  model.experts = ExpertsConfig{.count = 2, .per_token = 1, .intermediate_size = 6};
  const json::Value value = json::parse("{" + settings + "}", "s");
  std::string out;
  for (std::string name : target_modules(Keys(value.as_object(), "s"), model)) {
    for (const std::string& part : {std::string("model.layers."), std::string("block_sparse_moe.experts.")})
      if (const std::size_t at = name.find(part); at != std::string::npos) name.erase(at, part.size());
    out += (out.empty() ? "" : " ") + name;
  }
  return out;
}

TEST(TargetModules, IncludeLinearsOfExperts) {
  EXPECT_EQ(expert_targets_of(R"("target_modules": ["w1", "w3"], "layers_to_transform": 1)"),
            "1.0.w1 1.0.w3 1.1.w1 1.1.w3");
  EXPECT_EQ(expert_targets_of(R"("target_modules": ["experts.1.w2", "0.w3"])"), "0.0.w3 0.1.w2 1.0.w3 1.1.w2");
  EXPECT_EQ(expert_targets_of(R"("target_modules": ".*layers.0.*w[12]")"), "0.0.w1 0.1.w1 0.0.w2 0.1.w2");
  EXPECT_EQ(expert_targets_of(R"("target_modules": "all-linear", "exclude_modules": ["w1", "w2", "k_proj", "q_proj"])"),
            "0.self_attn.v_proj 0.self_attn.o_proj 0.0.w3 0.1.w3 1.self_attn.v_proj 1.self_attn.o_proj 1.0.w3 1.1.w3");
}

TEST(TargetModules, AreRefusedByName) {
  EXPECT_EQ(targets_of(""), "s: \"target_modules\" is missing");
  EXPECT_EQ(targets_of(R"("target_modules": null)"), "s: \"target_modules\" is missing");
  for (const char* wrong : {"{}", "-1", "[3]", "true"})
    EXPECT_EQ(targets_of("\"target_modules\": " + std::string(wrong)),
              "s: \"target_modules\" is neither a text nor an array of texts");
  for (const char* none : {"[]", "\"\"", "\"q_proj\"", "[\"x\"]"})
    EXPECT_EQ(targets_of("\"target_modules\": " + std::string(none)),
              "s: \"target_modules\" names no linear of a layer of this model");
  EXPECT_EQ(targets_of(R"("target_modules": ["q_proj", "lm_head"])"),
            "s: \"target_modules\" names lm_head, which is no linear of a layer");
  EXPECT_EQ(targets_of(R"("target_modules": "(?i).*")"),
            "s: \"target_modules\": an expression with a group that begins with (?i, which is not evaluated");
  EXPECT_EQ(targets_of(R"("target_modules": ["q_proj"], "exclude_modules": 3)"),
            "s: \"exclude_modules\" is neither a text nor an array of texts");
  EXPECT_EQ(targets_of(R"("target_modules": ["q_proj"], "layers_to_transform": "1")"),
            "s: \"layers_to_transform\" is neither an integer nor an array of integers");
  EXPECT_EQ(targets_of(R"("target_modules": "all-linear", "layers_to_transform": [1])"),
            "s: \"layers_to_transform\" contradicts a \"target_modules\" that is a text");
  EXPECT_EQ(targets_of(R"("target_modules": ["q_proj"], "layers_pattern": "layers")"),
            "s: \"layers_pattern\" needs \"layers_to_transform\"");
  EXPECT_EQ(targets_of(R"("target_modules": ["q_proj"], "layers_to_transform": 0, "layers_pattern": "model.layers")"),
            "s: \"layers_pattern\": \"model.layers\" is not evaluated: it is no plain name");
  EXPECT_EQ(targets_of(R"("target_modules": ["q_proj"], "layers_to_transform": 0, "layers_pattern": "h")"),
            "s: \"target_modules\" names no linear of a layer of this model");
}

TEST(AdapterFolder, RefusesTensorsByName) {
  const std::string file = "adapter_model.safetensors: ", k = "base_model.model.model.layers.0.self_attn.k_proj.lora_";
  const std::string settings = kSettings + "}", a = entry(kQ + "A.weight", "[1,4]", 0, 16);
  const std::string q = a + "," + entry(kQ + "B.weight", "[4,1]", 16, 32), bytes(64, 0);
  const auto with = [&](const std::string& entries, std::size_t size) {
    return adapter_refusal(settings, safetensors("{" + entries + "}", bytes.substr(0, size)));
  };
  EXPECT_EQ(with(a, 16), file + "no lora_B for model.layers.0.self_attn.q_proj, which target_modules names");
  EXPECT_EQ(with("", 0), file + "no lora_A for model.layers.0.self_attn.q_proj, which target_modules names");
  EXPECT_EQ(with(a + "," + entry(kQ + "B.weight", "[1,4]", 16, 32), 32),
            file + "tensor \"" + kQ + "B.weight\" is [1, 4], expected [4, 1]");
  EXPECT_EQ(with(q + "," + entry(k + "A.weight", "[1,4]", 32, 48) + "," + entry(k + "B.weight", "[4,1]", 48, 64), 64),
            file + "tensor \"" + k + "A.weight\" is on a linear that the settings do not select");
  EXPECT_EQ(with(q + "," + entry("x", "[4]", 32, 48), 48),
            file + "tensor \"x\" is not that of an adapter for a linear of this model's layers");
  EXPECT_EQ(
      with(q + "," + entry(k + "magnitude_vector", "[4]", 32, 48), 48),
      file + "tensor \"" + k + "magnitude_vector\" is not that of an adapter for a linear of this model's layers");
  EXPECT_NE(adapter_refusal(settings, "short").find("adapter_model.safetensors"), std::string::npos);
}

TEST(AdapterFolder, RefusesValuesThatAreNotFinite) {
  for (const float bad : {std::nanf(""), -HUGE_VALF}) {
    std::string tensors = kTensors;
    std::memcpy(tensors.data() + tensors.size() - 4, &bad, 4);
    const TemporaryFolder folder;
    folder.write("adapter_config.json", kSettings + "}");
    folder.write("adapter_model.safetensors", tensors);
    const AdapterFolder adapter(folder.path(), tiny());
    std::array<float, 4> values{};
    adapter.read_rows("model.layers.0.self_attn.q_proj.lora_A.weight", 0, 1, values);
    EXPECT_EQ(error_of([&] { adapter.read_rows("model.layers.0.self_attn.q_proj.lora_B.weight", 0, 4, values); }),
              folder.path() + "/adapter_model.safetensors: " + kQ + "B.weight: holds a value that is not finite");
  }
}

TEST(LoraKey, ReadsBack) {
  ModelConfig model = tiny();
  model.lora = LoraConfig{4, 16, true, 0.25, {"model.layers.0.self_attn.k_proj", "model.layers.0.mlp.down_proj"}};
  const ModelConfig back = parse_config(to_json(model), "back");
  EXPECT_EQ(back.lora, model.lora);
  EXPECT_EQ(back.lora->scaling(), 8);
  EXPECT_TRUE(same_model(back, model));
  EXPECT_FALSE(same_model(back, tiny()));
  ModelConfig without = back;
  without.lora.reset();
  EXPECT_FALSE(to_json(without).as_object().contains("lora"));
}

TEST(AdapterConfig, AlphaIsAnIntegerIfItIsWhole) {
  ModelConfig config = tiny();
  config.lora = LoraConfig{.rank = 2, .alpha = 16, .targets = {"model.layers.0.mlp.up_proj"}};
  const json::Value whole = adapter_config(config);
  EXPECT_TRUE(whole.as_object().find("lora_alpha")->is_int());
  EXPECT_EQ(whole.as_object().get_int("lora_alpha", "whole"), 16);
  config.lora->alpha = 0.5;
  EXPECT_EQ(json::dump(*adapter_config(config).as_object().find("lora_alpha")), "0.5");
}

TEST(LoraKey, IsChecked) {
  const auto refusal_of = [](const std::string& lora) {
    json::Value value = to_json(tiny());
    value.as_object().set("lora", json::parse(lora, "lora"));
    return error_of([&] { parse_config(value, "c"); });
  };
  const std::string head = R"({"r": 2, "lora_alpha": 4, "target_modules": )";
  EXPECT_EQ(refusal_of(head + R"(["model.layers.0.mlp.up_proj"]})"), kNone);
  EXPECT_EQ(refusal_of("3"), "c: lora: not an object");
  EXPECT_EQ(refusal_of("{}"), "c: lora: \"r\" is missing");
  EXPECT_EQ(refusal_of(R"({"r": 2, "lora_alpha": 4})"), "c: lora: \"target_modules\" is not an array");
  EXPECT_EQ(refusal_of(head + "[]}"), "c: lora: has no target module");
  EXPECT_EQ(refusal_of(head + "[3]}"), "c: lora: \"target_modules\" holds a value that is not text");
  EXPECT_EQ(refusal_of(head + R"(["model.layers.1.mlp.up_proj"]})"),
            "c: lora: target module \"model.layers.1.mlp.up_proj\" is no linear of a layer of this model");
  EXPECT_EQ(
      refusal_of(head + R"(["model.layers.0.mlp.up_proj", "model.layers.0.mlp.gate_proj"]})"),
      "c: lora: target module \"model.layers.0.mlp.gate_proj\" is not in the order of computation, or named twice");
}

}  // namespace
}  // namespace fp8::hf
