// Configurations of KempnerForge: what their keys and defaults are here.
#include "import_test.h"

namespace fp8::foreign {
namespace {

class Kempner : public ImportTest {
 protected:
  // A configuration with these tables.
  Import import(const std::string& tables, const Options& options = {}) {
    return import_text("train.toml", tables, options);
  }
};

constexpr const char* kModel = "[model]\ndim = 64\nn_layers = 2\nn_heads = 4\nn_kv_heads = 2\n";

TEST_F(Kempner, DefaultsOfTheTrainerAreWritten) {
  const Import i = import(kModel);
  expect_flags(i, {{"lr", "3e-04"},
                   {"betas", "0.9,0.95"},
                   {"eps", "1e-08"},
                   {"weight-decay", "0.1"},
                   {"decay", "matrices"},
                   {"clip", "1.0"},
                   {"schedule", "cosine"},
                   {"warmup-steps", "2000"},
                   {"warmup-from", "0.0"},
                   {"min-lr", "2.9999999999999997e-05"},
                   {"steps", "100000"},
                   {"batch-size", "8"},
                   {"grad-accumulation", "1"},
                   {"seq-length", "2048"},
                   {"precision", "bf16"},
                   {"master", "bf16"},
                   {"moments", "bf16"},
                   {"seed", "42"},
                   {"reduce-dtype", "f32"},
                   {"zero", "3"},
                   {"documents", "joined"}});
  EXPECT_EQ(class_of(i, "train.mixed_precision"), Class::differs);
}

TEST_F(Kempner, ModelBecomesAConfiguration) {
  const Import i = import("[model]\ndim = 4096\nn_heads = 32\nn_kv_heads = 8\nffn_dim_multiplier = 1.3\n");
  ASSERT_TRUE(i.config);
  for (const auto& [name, value] : {std::pair("hidden_size", 4096),
                                    {"intermediate_size", 14336},
                                    {"num_hidden_layers", 32},
                                    {"num_key_value_heads", 8},
                                    {"head_dim", 128},
                                    {"vocab_size", 32000}})
    EXPECT_EQ(i.config->get_int(name, "config"), value) << name;
  EXPECT_EQ(i.config->get_string("model_type", "config"), "llama");
  EXPECT_EQ(i.config->get_double("rms_norm_eps", "config"), 1e-5);
  EXPECT_EQ(import(std::string(kModel) + "qk_norm = true\n").config->get_string("model_type", "config"), "qwen3");
  EXPECT_EQ(import("dim = 64\nn_heads = 4\nn_layers = 3\n").config->get_int("num_hidden_layers", "config"), 3);
}

TEST_F(Kempner, ExpertsBecomeMixtralOrAreRefused) {
  const Import i = import(std::string(kModel) + "num_experts = 4\nmoe_expert_ffn_multiplier = 0.5\n");
  EXPECT_EQ(i.config->get_string("model_type", "config"), "mixtral");
  EXPECT_EQ(i.config->get_int("num_local_experts", "config"), 4);
  EXPECT_EQ(i.config->get_int("intermediate_size", "config"), 128);
  EXPECT_EQ(flag(i, "aux-loss"), "0.01");
  const Import r = import(std::string(kModel) +
                          "num_experts = 4\nmoe_frequency = 2\nmoe_router = \"sigmoid_topk\"\n"
                          "moe_shared_experts = 1\nmoe_capacity_factor = 1.25\n");
  for (const char* key : {"moe_frequency", "moe_router", "moe_shared_experts", "moe_capacity_factor"})
    EXPECT_EQ(class_of(r, std::string("model.") + key), Class::no_counterpart) << key;
}

// "fp8" is tensorwise with an FP8 all-gather and the head, over weights and moments in bf16; experts stay in bf16.
TEST_F(Kempner, Fp8IsTensorwiseWithTheHead) {
  const std::string fp8 = "[train]\nmixed_precision = \"fp8\"\n";
  const Import i = import(kModel + fp8);
  expect_flags(i, {{"precision", "fp8"},
                   {"recipe", "tensorwise"},
                   {"fp8-all-gather", "true"},
                   {"fp8-lm-head", "true"},
                   {"master", "bf16"},
                   {"moments", "bf16"},
                   {"filter", "none"}});
  EXPECT_EQ(flag(import(std::string(kModel) + "num_experts = 4\n" + fp8), "filter"), "[\"*.experts.*\"]");
  EXPECT_EQ(class_of(import(kModel + fp8 + "[distributed]\ntp = 2\n"), "distributed.tp"), Class::no_counterpart);
}

// The ranks that share experts are beside those that share layers.
TEST_F(Kempner, ExpertParallelMultipliesTheRanks) {
  const Import i =
      import(std::string(kModel) + "num_experts = 4\n[distributed]\ndp_shard = 4\nep = 2\ndp_replicate = 2\n");
  EXPECT_EQ(flag(i, "dp-shard"), "8");
  EXPECT_EQ(flag(i, "ep"), "2");
  EXPECT_EQ(i.ranks, 16);
}

TEST_F(Kempner, SchedulesEndWhereTheyEndThere) {
  const std::string run = std::string(kModel) + "[train]\nmax_steps = 100\n[scheduler]\nwarmup_steps = 10\n";
  EXPECT_EQ(flag(import(run), "schedule-steps"), "none");
  EXPECT_EQ(flag(import(run + "decay_steps = 50\n"), "schedule-steps"), "60");
  const Import wsd = import(run + "name = \"wsd\"\nstable_steps = 20\n");
  EXPECT_EQ(flag(wsd, "decay-steps"), "70");
  EXPECT_EQ(flag(wsd, "decay-shape"), "cosine");
  const Import none = import(run + "name = \"none\"\n");
  EXPECT_EQ(flag(none, "schedule"), "constant");
  EXPECT_EQ(flag(none, "warmup-steps"), "0");
  EXPECT_EQ(class_of(none, "scheduler.warmup_steps"), Class::does_nothing);
  EXPECT_EQ(class_of(import(run + "name = \"rex\"\n"), "scheduler.name"), Class::no_counterpart);
}

// Ids have four bytes if the size of the file allows it.
TEST_F(Kempner, DataIsFoundByItsPattern) {
  write("data/tokenized_0.bin", std::string(8, '\0'));
  write("data/tokenized_1.bin", std::string(6, '\0'));
  write("data/other.txt", "x");
  const Import i = import(std::string(kModel) + "[data]\ndataset_path = \"" + at("data") +
                          "\"\nfile_pattern = \"tokenized_*.bin\"\n");
  ASSERT_EQ(i.data.train.size(), 2U);
  EXPECT_EQ(i.data.train[0].format, "u32");
  EXPECT_EQ(i.data.train[1].format, "u16");
  const Import hub = import(std::string(kModel) + "[data]\nhf_dataset_name = \"org/text\"\n");
  EXPECT_TRUE(std::ranges::any_of(
      hub.missing, [](const std::string& what) { return what.find("text.jsonl") != std::string::npos; }));
}

TEST_F(Kempner, MuonIsMappedAndItsOtherSettingsAreRefused) {
  const Import i = import(std::string(kModel) +
                          "[optimizer]\nname = \"muon\"\nlr = 0.02\nmuon_momentum = 0.95\nmuon_adam_lr = 0.02\n");
  EXPECT_EQ(flag(i, "optimizer"), "muon");
  EXPECT_EQ(flag(i, "muon-scale"), "original");
  EXPECT_EQ(class_of(i, "optimizer.name"), Class::differs);
  EXPECT_EQ(class_of(i, "optimizer.muon_momentum"), Class::mapped);
  EXPECT_EQ(class_of(i, "optimizer.muon_adam_lr"), Class::mapped);
  const Import other = import(std::string(kModel) +
                              "[optimizer]\nname = \"muon\"\nmuon_momentum = 0.9\nmuon_ns_steps = 6\n"
                              "muon_adam_lr = 1e-4\n");
  for (const char* key : {"optimizer.muon_momentum", "optimizer.muon_ns_steps", "optimizer.muon_adam_lr"})
    EXPECT_EQ(class_of(other, key), Class::no_counterpart) << key;
  EXPECT_EQ(class_of(import(std::string(kModel) + "[optimizer]\nmuon_ns_steps = 6\n"), "optimizer.muon_ns_steps"),
            Class::does_nothing);
}

TEST_F(Kempner, OtherOptimizersLossesAndDataAreRefused) {
  const Import i = import(std::string(kModel) +
                          "norm_type = \"layernorm\"\n[train]\nz_loss_weight = 1e-4\n[optimizer]\nname = \"lion\"\n"
                          "[data]\nmix_temperature = 2.0\n[[data.datasets]]\npath = \"a\"\n[vlm]\narch = \"mot\"\n");
  for (const char* key :
       {"model.norm_type", "train.z_loss_weight", "optimizer.name", "data.datasets[0].path", "vlm.arch"})
    EXPECT_EQ(class_of(i, key), Class::no_counterpart) << key;
  EXPECT_EQ(unknown(i), "");
}

}  // namespace
}  // namespace fp8::foreign
