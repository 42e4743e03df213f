// Configurations of Axolotl: what their keys and defaults are here.
#include "import_test.h"

namespace fp8::foreign {
namespace {

class Axolotl : public ImportTest {
 protected:
  // A configuration for 103 conversations, with these lines more.
  Import import(const std::string& lines, const Options& options = {}) {
    write_messages("chat.jsonl", 103);
    return import_text("axolotl.yaml",
                       "base_model: org/model\nlearning_rate: 2e-4\ndatasets:\n  - path: " + at("chat.jsonl") +
                           "\n    type: chat_template\n" + lines,
                       options);
  }
};

TEST_F(Axolotl, DefaultsOfTheTrainerAreWritten) {
  const Import i = import("excess_length_strategy: truncate\n");
  expect_flags(i, {{"lr", "2e-04"},
                   {"decay", "matrices"},
                   {"schedule", "cosine"},
                   {"min-lr", "0.0"},
                   {"batch-size", "1"},
                   {"grad-accumulation", "1"},
                   {"steps", "103"},
                   {"warmup-steps", "3"},
                   {"warmup-from", "0.0"},
                   {"seq-length", "512"},
                   {"master", "bf16"},
                   {"moments", "bf16"},
                   {"zero", "1"}});
  expect_flags(i, kUsual);
  EXPECT_EQ(class_of(i, "bf16"), Class::differs);
  EXPECT_EQ(import("").data.too_long, "drop");
}

// 3 % of all steps and 100 at most; a ratio is rounded down; 1 becomes 2.
TEST_F(Axolotl, WarmupHasItsOwnRule) {
  const auto warmup = [&](const std::string& lines) { return flag(import(lines), "warmup-steps"); };
  EXPECT_EQ(warmup("max_steps: 10000\n"), "100");
  EXPECT_EQ(warmup("max_steps: 40\n"), "2");
  EXPECT_EQ(warmup("max_steps: 40\nwarmup_ratio: 0.1\n"), "4");
  EXPECT_EQ(warmup("max_steps: 49\nwarmup_ratio: 0.1\n"), "4");
  EXPECT_EQ(warmup("max_steps: 49\nwarmup_steps: 0.1\n"), "5");
  EXPECT_EQ(warmup("max_steps: 49\nwarmup_steps: 1\n"), "2");
  EXPECT_EQ(warmup("max_steps: 49\nwarmup_steps: 7\nlr_scheduler: constant\n"), "0");
}

// Steps are rounded once over all epochs, not in each.
TEST_F(Axolotl, StepsAreRoundedOnce) {
  const Import i =
      import("excess_length_strategy: truncate\nmicro_batch_size: 2\ngradient_accumulation_steps: 5\nnum_epochs: 3\n");
  EXPECT_EQ(flag(i, "steps"), "31");
  EXPECT_HOLDS(test::error_of([&] { (void)import("sequence_len: 0\n"); }), "sequence_len: must be from 1");
  EXPECT_EQ(flag(import("micro_batch_size: 2\nbatch_size: 8\nmax_steps: 1\n"), "grad-accumulation"), "4");
}

TEST_F(Axolotl, LossesOfRanksAreAveraged) {
  Options options;
  options.ranks = 2;
  EXPECT_EQ(class_of(import("", options), "average_tokens_across_devices"), Class::differs);
  EXPECT_EQ(class_of(import(""), "average_tokens_across_devices"), Class::trainer_default);
}

// Adapters, DeepSpeed and FSDP 1 have f32 weights to train, FSDP 2 and one GPU have not.
TEST_F(Axolotl, TypesOfWeightsFollowTheWrapper) {
  const std::string fsdp = "fsdp_config: {transformer_layer_cls_to_wrap: LlamaDecoderLayer}\n";
  EXPECT_EQ(flag(import("adapter: lora\nlora_r: 8\n"), "master"), "fp32");
  EXPECT_EQ(flag(import(fsdp), "master"), "fp32");
  EXPECT_EQ(flag(import(fsdp + "fsdp_version: 2\n"), "master"), "bf16");
  const Import wide = import("bf16: false\n");
  EXPECT_EQ(flag(wide, "precision"), "fp32");
  EXPECT_EQ(flag(wide, "master"), "fp32");
  EXPECT_EQ(class_of(import("fp16: true\nbf16: false\n"), "fp16"), Class::no_counterpart);
}

TEST_F(Axolotl, Fp8LeavesOutTheFirstAndTheLastLinear) {
  const Import i = import("fp8: true\nfp8_enable_fsdp_float8_all_gather: true\nfsdp_version: 2\n");
  expect_flags(i, {{"precision", "fp8"},
                   {"recipe", "tensorwise"},
                   {"fp8-all-gather", "true"},
                   {"filter", "[\"model.layers.0.self_attn.q_proj\"]"},
                   {"fp8-lm-head", "none"}});
  EXPECT_EQ(class_of(import("fp8_enable_fsdp_float8_all_gather: true\n"), "fp8_enable_fsdp_float8_all_gather"),
            Class::does_nothing);
}

TEST_F(Axolotl, AdaptersAndTheirTargets) {
  const Import i = import(
      "adapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_dropout: 0.05\n"
      "lora_target_modules: [q_proj, self_attn.o_proj]\npeft_use_rslora: true\n");
  expect_flags(i, {{"lora-rank", "16"},
                   {"lora-alpha", "32.0"},
                   {"lora-dropout", "0.05"},
                   {"lora-targets", "[\"q_proj\",\"*.self_attn.o_proj\"]"},
                   {"rslora", "true"}});
  EXPECT_EQ(flag(import("adapter: lora\nlora_target_linear: true\n"), "lora-targets"), "[\"all\"]");
  EXPECT_EQ(class_of(import("adapter: lora\nlora_target_modules: '.*[qv]_proj'\n"), "lora_target_modules"),
            Class::no_counterpart);
  EXPECT_EQ(flag(import("lora_r: 16\n"), "lora-rank"), "none");
}

TEST_F(Axolotl, RefusesByName) {
  const Import i = import(
      "adapter: qlora\nload_in_4bit: true\noptimizer: adamw_bnb_8bit\nneftune_noise_alpha: 5\nrl: dpo\n"
      "lr_scheduler: rex\nplugins: [axolotl.integrations.spectrum.SpectrumPlugin]\ngroup_by_length: true\n");
  for (const char* key : {"adapter", "load_in_4bit", "optimizer", "neftune_noise_alpha", "rl", "lr_scheduler",
                          "plugins", "group_by_length"})
    EXPECT_EQ(class_of(i, key), Class::no_counterpart) << key;
  EXPECT_NE(answer(i, "optimizer").why.find("8 bits"), std::string::npos);
  // A switch that is off, and a key without a value, need no counterpart.
  const Import off = import(
      "load_in_4bit: false\nreward_model: false\nearly_stopping_patience:\ngroup_by_length: false\n"
      "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rope: true\n");
  EXPECT_TRUE(refused(off).empty());
}

TEST_F(Axolotl, ConversationsHaveTheirColumns) {
  const Import i = import(
      "    field_messages: conversations\n    message_property_mappings: {role: from, content: value}\n"
      "chat_template: chatml\ntrain_on_inputs: true\nsample_packing: true\nsequence_len: 64\nval_set_size: 0.1\n");
  ASSERT_EQ(i.data.train.size(), 1U);
  EXPECT_EQ(i.data.train[0].format, "sharegpt");
  EXPECT_TRUE(i.data.train[0].columns.empty());
  EXPECT_EQ(i.data.chat_template, "chatml");
  EXPECT_EQ(i.data.mask, "all");
  EXPECT_TRUE(i.data.packed);
  EXPECT_EQ(i.data.eval_share, 0.1);
}

// Prompts of Alpaca are refused, and rendered with the template of the model if that is allowed.
TEST_F(Axolotl, PromptsOfAlpacaAreRefused) {
  write("data/alpaca.jsonl", R"({"instruction":"a","input":"","output":"b"})"
                             "\n");
  const std::string text =
      "base_model: m\nlearning_rate: 1e-4\ndatasets:\n  - {path: tatsu-lab/alpaca, type: alpaca}\n";
  const Import i = import_text("alpaca.yaml", text);
  EXPECT_EQ(class_of(i, "datasets[0].type"), Class::no_counterpart);
  EXPECT_TRUE(std::ranges::any_of(
      i.missing, [](const std::string& what) { return what.find("alpaca.jsonl") != std::string::npos; }));
  Options options;
  options.dataset_dir = at("data");
  options.allow = {"datasets[0].type"};
  const Import allowed = import_text("alpaca.yaml", text, options);
  EXPECT_TRUE(refused(allowed).empty());
  ASSERT_EQ(allowed.data.train.size(), 1U);
  EXPECT_EQ(allowed.data.train[0].format, "alpaca");
}

TEST_F(Axolotl, UnknownKeysAreNamed) {
  EXPECT_EQ(unknown(import("wandb_project: x\nliger_rms_norm: true\n")), "");
  EXPECT_EQ(unknown(import("micro_batchsize: 4\n")), "micro_batchsize ");
}

TEST_F(Axolotl, ValuesOfAnotherTypeAreNamed) {
  EXPECT_EQ(answer(import("plugins: 5\n"), "plugins").why, "its value is not read here: found 5");
  for (const char* targets : {"5", "[q_proj, 5]", "{a: q_proj}"})
    EXPECT_EQ(test::error_of([&] { import(std::string("adapter: lora\nlora_target_modules: ") + targets + "\n"); }),
              at("axolotl.yaml: line 7: lora_target_modules: must be a list of names"))
        << targets;
}

}  // namespace
}  // namespace fp8::foreign
