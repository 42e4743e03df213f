// Recipes of NeMo AutoModel: what their keys and defaults are here.
#include "import_test.h"

namespace fp8::foreign {
namespace {

class AutoModel : public ImportTest {
 protected:
  // A recipe for fine-tuning on 10 conversations, with these lines more.
  Import import(const std::string& lines, const Options& options = {}) {
    write_messages("train.jsonl", 10);
    return import_text("recipe.yaml",
                       "recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
                       "model:\n"
                       "  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
                       "  pretrained_model_name_or_path: org/model\n"
                       "dataset:\n"
                       "  _target_: nemo_automodel.components.datasets.llm.chat_dataset.ChatDataset\n"
                       "  path_or_dataset_id: " +
                           at("train.jsonl") + "\n" + lines,
                       options);
  }
};

constexpr const char* kAdam = "optimizer: {_target_: torch.optim.Adam, lr: 1.0e-5, weight_decay: 0}\n";

// Without a schedule the rate is constant, and all tensors decay alike.
TEST_F(AutoModel, DefaultsOfTheTrainerAreWritten) {
  const Import i = import(std::string(kAdam) + "step_scheduler: {global_batch_size: 4, num_epochs: 1}\n");
  expect_flags(i, {{"lr", "1e-05"},
                   {"decay", "all"},
                   {"schedule", "constant"},
                   {"warmup-steps", "0"},
                   {"warmup-from", "none"},
                   {"steps", "3"},
                   {"batch-size", "1"},
                   {"grad-accumulation", "4"},
                   {"master", "fp32"},
                   {"moments", "fp32"},
                   {"zero", "3"},
                   {"reduce-dtype", "f32"}});
  expect_flags(i, kUsual);
  EXPECT_EQ(class_of(i, "lr_scheduler"), Class::trainer_default);
}

// The batch of a step is stated over all ranks.
TEST_F(AutoModel, GlobalBatchIsOverAllRanks) {
  Options options;
  options.ranks = 4;
  const Import i =
      import(std::string(kAdam) + "step_scheduler: {global_batch_size: 32, local_batch_size: 2}\n", options);
  EXPECT_EQ(flag(i, "batch-size"), "2");
  EXPECT_EQ(flag(i, "grad-accumulation"), "4");
}

// The shorter of both limits ends the run.
TEST_F(AutoModel, StepsAndEpochsBothLimitARun) {
  const std::string batch = "step_scheduler: {global_batch_size: 5, num_epochs: 3, max_steps: ";
  EXPECT_EQ(flag(import(kAdam + batch + "100}\n"), "steps"), "6");
  EXPECT_EQ(flag(import(kAdam + batch + "4}\n"), "steps"), "4");
}

TEST_F(AutoModel, ScheduleHasItsOwnDefaults) {
  const std::string steps = "step_scheduler: {global_batch_size: 1, max_steps: 57}\n";
  const Import i = import(kAdam + steps + "lr_scheduler: {lr_decay_style: cosine}\n");
  expect_flags(i, {{"schedule", "cosine"},
                   {"warmup-steps", "5"},
                   {"warmup-from", "1.0000000000000002e-06"},
                   {"min-lr", "1.0000000000000001e-07"}});
  const Import long_run =
      import(std::string(kAdam) + "step_scheduler: {max_steps: 20000}\nlr_scheduler: {min_lr: 0}\n");
  EXPECT_EQ(flag(long_run, "warmup-steps"), "1000");
  EXPECT_THROW(import(kAdam + steps + "lr_scheduler: {lr_warmup_steps: 0.1}\n"), Error);
}

TEST_F(AutoModel, WeightDecayOfAdamIsRefused) {
  const std::string adam = "optimizer: {_target_: torch.optim.Adam, lr: 1.0e-5, weight_decay: ";
  EXPECT_EQ(class_of(import(adam + "0}\n"), "optimizer.weight_decay"), Class::mapped);
  EXPECT_EQ(class_of(import(adam + "0.01}\n"), "optimizer.weight_decay"), Class::no_counterpart);
  const Import w = import("optimizer: {_target_: torch.optim.AdamW, lr: 1.0e-5, weight_decay: 0.01}\n");
  EXPECT_EQ(class_of(w, "optimizer.weight_decay"), Class::mapped);
  EXPECT_EQ(flag(w, "weight-decay"), "0.01");
}

TEST_F(AutoModel, MuonOfDionIsMappedWithWhatDiffers) {
  const Import plain = import("optimizer: {_target_: dion.Muon}\n");
  expect_flags(plain, {{"optimizer", "muon"},
                       {"muon-scale", "original"},
                       {"lr", "5e-04"},
                       {"betas", "0.9,0.999"},
                       {"weight-decay", "0.0"},
                       {"decay", "matrices"}});
  for (const char* key : {"_target_", "nesterov", "adjust_lr", "lm_head_lr"})
    EXPECT_EQ(class_of(plain, std::string("optimizer.") + key), Class::differs) << key;
  const Import same = import(
      "optimizer: {_target_: dion.Muon, lr: 1.0e-3, nesterov: true, adjust_lr: rms_norm, mu: 0.95, scalar_lr: 1.0e-3, "
      "embed_lr: 1.0e-3, lm_head_lr: 1.0e-3, use_triton: true, epsilon: 1.0e-7}\n"
      "lr_scheduler: {lr_warmup_steps: 10}\n");
  EXPECT_EQ(flag(same, "muon-scale"), "rms");
  for (const char* key : {"nesterov", "adjust_lr", "mu", "scalar_lr", "embed_lr", "lm_head_lr"})
    EXPECT_EQ(class_of(same, std::string("optimizer.") + key), Class::mapped) << key;
  const Import other = import("optimizer: {_target_: dion.Muon, mu: 0.9, scalar_opt: lion, scalar_lr: 1.0e-4}\n");
  for (const char* key : {"mu", "scalar_opt", "scalar_lr"})
    EXPECT_EQ(class_of(other, std::string("optimizer.") + key), Class::no_counterpart) << key;
  EXPECT_EQ(class_of(import("optimizer: {_target_: torch.optim.Muon}\n"), "optimizer._target_"), Class::no_counterpart);
  for (const Import* i : {&plain, &same, &other}) EXPECT_EQ(unknown(*i), "");
}

// torch.optim keeps no f32 copy of weights that are bf16.
TEST_F(AutoModel, TypeOfWeightsIsThatOfMoments) {
  const auto model = [](const std::string& type) {
    return "model:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
           "  pretrained_model_name_or_path: org/model\n  torch_dtype: " +
           type + "\n";
  };
  const std::string adam = "optimizer: {_target_: torch.optim.AdamW, lr: 1.0e-5}\n";
  const std::string fused =
      "optimizer: {_target_: transformer_engine.pytorch.optimizers.FusedAdam, lr: 1.0e-5, master_weights: true}\n";
  const Import half = import_text("a.yaml", model("bf16") + adam);
  EXPECT_EQ(flag(half, "master"), "bf16");
  EXPECT_EQ(flag(half, "moments"), "bf16");
  EXPECT_EQ(class_of(half, "model.torch_dtype"), Class::differs);
  EXPECT_EQ(flag(import_text("b.yaml", model("auto") + adam), "master"), "fp32");
  EXPECT_EQ(flag(import_text("c.yaml", model("bf16") + fused), "master"), "fp32");
}

TEST_F(AutoModel, Fp8BlockKeyByKey) {
  const Import i =
      import(std::string(kAdam) +
             "fp8:\n  enabled: true\n  recipe_name: tensorwise\n"
             "  enable_fsdp_float8_all_gather: true\n"
             "  precompute_float8_dynamic_scale_for_fsdp: true\n"
             "  force_recompute_fp8_weight_in_bwd: true\n  filter_fqns: [lm_head, o_proj]\n  emulate: false\n");
  expect_flags(i, {{"precision", "fp8"},
                   {"recipe", "tensorwise"},
                   {"fp8-all-gather", "true"},
                   {"fp8-lm-head", "false"},
                   {"filter", "[\"*o_proj*\"]"}});
  // No filter: the head is FP8. Rowwise does not read the keys of tensorwise.
  const Import r =
      import(std::string(kAdam) + "fp8: {enabled: true, recipe_name: rowwise, enable_fsdp_float8_all_gather: true}\n");
  EXPECT_EQ(flag(r, "fp8-lm-head"), "true");
  EXPECT_EQ(flag(r, "fp8-all-gather"), "false");
  EXPECT_EQ(class_of(r, "fp8.enable_fsdp_float8_all_gather"), Class::does_nothing);
  // Off unless enabled says so.
  const Import off = import(std::string(kAdam) + "fp8: {recipe_name: rowwise}\n");
  EXPECT_EQ(flag(off, "precision"), "bf16");
  EXPECT_EQ(class_of(off, "fp8.recipe_name"), Class::does_nothing);
}

TEST_F(AutoModel, AdaptersHaveTheirOwnDefaults) {
  const Import i = import(std::string(kAdam) + "peft: {_target_: nemo_automodel.components._peft.lora.PeftConfig}\n");
  expect_flags(i, {{"lora-rank", "8"}, {"lora-alpha", "32.0"}, {"lora-targets", "[\"*_proj\"]"}, {"master", "none"}});
  const Import all = import(std::string(kAdam) + "peft: {match_all_linear: true, use_dora: true}\n");
  EXPECT_EQ(class_of(all, "peft.match_all_linear"), Class::differs);
  EXPECT_EQ(class_of(all, "peft.use_dora"), Class::no_counterpart);
}

TEST_F(AutoModel, DataOfAHubAndRandomIdsAreRefused) {
  const std::string head =
      "model: {_target_: a.NeMoAutoModelForCausalLM.from_pretrained, pretrained_model_name_or_path: m}\n";
  const Import hub = import_text(
      "hub.yaml", head + std::string(kAdam) +
                      "dataset: {_target_: nemo_automodel.components.datasets.llm.squad.make_squad_dataset, "
                      "dataset_name: rajpurkar/squad, split: train}\n");
  EXPECT_EQ(class_of(hub, "dataset._target_"), Class::no_counterpart);
  EXPECT_TRUE(std::ranges::any_of(
      hub.missing, [](const std::string& what) { return what.find("squad.jsonl") != std::string::npos; }));
  const Import mock = import_text(
      "mock.yaml",
      head + std::string(kAdam) +
          "dataset: {_target_: nemo_automodel.components.datasets.llm.mock_iterable_dataset.MockIterableDataset, "
          "seq_len: 64}\n");
  EXPECT_EQ(class_of(mock, "dataset._target_"), Class::no_counterpart);
  EXPECT_EQ(flag(mock, "seq-length"), "64");
}

TEST_F(AutoModel, PackingLeavesOutLongRecords) {
  const Import i = import(std::string(kAdam) + "packed_sequence: {packed_sequence_size: 128}\n");
  EXPECT_TRUE(i.data.packed);
  EXPECT_EQ(i.data.too_long, "drop");
  EXPECT_EQ(i.data.length, 128);
}

TEST_F(AutoModel, ReadsFilesThatAColumnMappingNames) {
  write("qa.jsonl", R"({"q":"a","a":"b"})"
                    "\n");
  const Import i = import_text(
      "columns.yaml",
      "model: {_target_: a.NeMoAutoModelForCausalLM.from_pretrained, pretrained_model_name_or_path: m}\n" +
          std::string(kAdam) + "dataset:\n  _target_: x.ColumnMappedTextInstructionDataset\n  path_or_dataset_id: " +
          at("qa.jsonl") + "\n  column_mapping: {question: q, answer: a}\n  limit_dataset_samples: 1\n");
  ASSERT_EQ(i.data.train.size(), 1U);
  EXPECT_EQ(i.data.train[0].format, "alpaca");
  EXPECT_EQ(i.data.train[0].columns, (std::vector<std::string>{"prompt=q", "response=a"}));
  EXPECT_EQ(i.data.train[0].most_records, 1);
}

TEST_F(AutoModel, ForeignModelsAndMeshesAreRefusedByName) {
  const Import i =
      import_text("m.yaml",
                  "model: {_target_: a.NeMoAutoModelForCausalLM.from_pretrained, pretrained_model_name_or_path: "
                  "google/gemma-2-9b}\n" +
                      std::string(kAdam) + "distributed: {strategy: fsdp2, cp_size: 2, tp_size: 2, pp_size: none}\n");
  EXPECT_EQ(class_of(i, "model.pretrained_model_name_or_path"), Class::no_counterpart);
  EXPECT_NE(answer(i, "model.pretrained_model_name_or_path").why.find("Gemma"), std::string::npos);
  EXPECT_EQ(class_of(i, "distributed.cp_size"), Class::no_counterpart);
  EXPECT_EQ(flag(i, "tp"), "2");
  EXPECT_EQ(flag(i, "pp"), "1");
  EXPECT_EQ(i.ranks, 2);
}

TEST_F(AutoModel, UnknownKeysAreNamed) {
  EXPECT_EQ(unknown(import(std::string(kAdam) + "ci: {a: {b: 1}}\nwandb: {name: x}\n")), "");
  EXPECT_EQ(unknown(import(std::string(kAdam) + "stepscheduler: {max_steps: 5}\n")), "stepscheduler.max_steps ");
}

}  // namespace
}  // namespace fp8::foreign
