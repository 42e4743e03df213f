// Configurations of LLaMA-Factory: what its keys and defaults are here, and the length of a run in steps.
#include <gtest/gtest.h>

#include <algorithm>

#include "import_test.h"

namespace fp8::foreign {
namespace {

using test::error_of;

class LlamaFactory : public ImportTest {
 protected:
  // Data of `records` conversations, and a configuration with these lines more than the least.
  Import import(const std::string& lines, int records = 10, std::optional<std::int64_t> ranks = {}) {
    std::string data = "[";
    for (int i = 0; i < records; ++i) data += std::string(i > 0 ? "," : "") + R"({"instruction":"a","output":"b"})";
    write("data/x.json", data + "]");
    write("data/dataset_info.json", R"({"x":{"file_name":"x.json"}})");
    write("sft.yaml", "model_name_or_path: m\nstage: sft\ndataset: x\ntemplate: llama3\n" + lines);
    Options options;
    options.files = {at("sft.yaml")};
    options.files.insert(options.files.end(), more_.begin(), more_.end());
    options.dataset_dir = at("data");
    options.ranks = ranks;
    return read(options);
  }

  std::vector<std::string> more_;
};

TEST_F(LlamaFactory, DefaultsOfTheTrainerAreWritten) {
  const Import i = import("finetuning_type: full\nbf16: true\n");
  expect_flags(i, {{"lr", "5e-05"},
                   {"decay", "matrices"},
                   {"schedule", "linear"},
                   {"min-lr", "0.0"},
                   {"batch-size", "8"},
                   {"grad-accumulation", "1"},
                   {"steps", "6"},
                   {"warmup-steps", "0"},
                   {"warmup-from", "none"},
                   {"master", "fp32"},
                   {"moments", "fp32"},
                   {"seq-length", "2048"},
                   {"lora-rank", "none"}});
  expect_flags(i, kUsual);
  EXPECT_EQ(class_of(i, "learning_rate"), Class::trainer_default);
  EXPECT_EQ(i.data.too_long + " " + i.data.mask, "cut assistant");
}

// A step has the sequences of all micro-batches of all ranks, and an incomplete batch is a step.
TEST_F(LlamaFactory, StepsFollowFromRecordsBatchesAndRanks) {
  const std::string batch = "per_device_train_batch_size: 2\ngradient_accumulation_steps: 3\nnum_train_epochs: 2\n";
  EXPECT_EQ(flag(import(batch, 25, 2), "steps"), "6");
  EXPECT_EQ(flag(import(batch, 24, 2), "steps"), "4");
  EXPECT_EQ(flag(import(batch + "dataloader_drop_last: true\n", 25, 2), "steps"), "4");
  EXPECT_EQ(flag(import(batch + "max_samples: 12\n", 25, 2), "steps"), "2");
  EXPECT_EQ(flag(import(batch + "val_size: 0.5\n", 25, 2), "steps"), "2");
  EXPECT_EQ(flag(import(batch + "val_size: -1\n", 25, 2), "steps"), "6");
  EXPECT_EQ(flag(import(batch + "val_size: 1\n", 25, 2), "steps"), "4");
  EXPECT_EQ(flag(import(batch + "max_steps: 7\n", 25, 2), "steps"), "7");
  EXPECT_EQ(class_of(import(batch, 25, 2), "(last batch)"), Class::differs);
}

// The product of these sizes is 2^64.
TEST_F(LlamaFactory, SizesOfAnyMeshAreMultiplied) {
  const Import mesh = import("tensor_model_parallel_size: 4294967296\npipeline_model_parallel_size: 4294967296\n");
  EXPECT_HOLDS(mesh.missing.at(1), "ranks: 1 cannot be divided by tensor- and pipeline-parallel 1000000000");
}

TEST_F(LlamaFactory, WarmupIsRoundedUpAndBeginsAtZero) {
  const Import i = import("per_device_train_batch_size: 1\nnum_train_epochs: 1\nwarmup_ratio: 0.21\n");
  EXPECT_EQ(flag(i, "warmup-steps"), "3");
  EXPECT_EQ(flag(i, "warmup-from"), "0.0");
  EXPECT_HOLDS(answer(i, "warmup_ratio").why, "5.24");
  EXPECT_EQ(flag(import("max_steps: 10\nwarmup_steps: 0.21\n"), "warmup-steps"), "3");
  EXPECT_EQ(flag(import("max_steps: 10\nwarmup_steps: 4\n"), "warmup-steps"), "4");
  EXPECT_EQ(flag(import("max_steps: 10\nwarmup_steps: 4\nlr_scheduler_type: constant\n"), "warmup-steps"), "0");
}

TEST_F(LlamaFactory, SchedulesByName) {
  const auto schedule = [&](const std::string& lines) {
    const Import i = import("max_steps: 100\nlearning_rate: 1.0e-3\n" + lines);
    return flag(i, "schedule") + " " + flag(i, "min-lr") + " " + flag(i, "decay-steps");
  };
  EXPECT_EQ(schedule("lr_scheduler_type: cosine\n"), "cosine 0.0 none");
  EXPECT_EQ(schedule("lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.1}\n"),
            "cosine 1e-04 none");
  EXPECT_EQ(schedule("lr_scheduler_type: polynomial\n"), "linear 1e-07 none");
  EXPECT_EQ(schedule("lr_scheduler_type: warmup_stable_decay\nwarmup_steps: 10\n"), "wsd 0.0 60");
  EXPECT_EQ(class_of(import("lr_scheduler_type: inverse_sqrt\n"), "lr_scheduler_type"), Class::no_counterpart);
}

TEST_F(LlamaFactory, Fp8ByBackend) {
  const Import te = import("fp8: true\nfp8_backend: te\nbf16: true\n");
  EXPECT_EQ(flag(te, "precision") + " " + flag(te, "recipe") + " " + flag(te, "fp8-format"), "fp8 delayed hybrid");
  EXPECT_EQ(flag(te, "amax-history") + " " + flag(te, "amax-algo"), "16 max");
  EXPECT_EQ(flag(import("fp8: true\nbf16: true\n"), "recipe"), "rowwise");
  EXPECT_EQ(class_of(import("fp8: true\nfp8_backend: msamp\n"), "fp8_backend"), Class::no_counterpart);
  const Import off = import("bf16: true\nfp8_enable_fsdp_float8_all_gather: true\n");
  EXPECT_EQ(class_of(off, "fp8_enable_fsdp_float8_all_gather"), Class::does_nothing);
  EXPECT_EQ(flag(off, "precision"), "bf16");
}

TEST_F(LlamaFactory, AFileOfAccelerateStatesRanksAndTheHistoryOfAmaxes) {
  more_ = {write("accelerate.yaml",
                 "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 4\nmixed_precision: fp8\n"
                 "fp8_config: {backend: TE, amax_history_len: 1024, fp8_format: HYBRID}\n")};
  const Import i = import("fp8: true\nfp8_backend: te\nper_device_train_batch_size: 1\nnum_train_epochs: 1\n", 16);
  EXPECT_EQ(flag(i, "amax-history") + " " + flag(i, "steps"), "1024 4");
  EXPECT_EQ(class_of(import("bf16: true\n"), "mixed_precision"), Class::does_nothing);
}

TEST_F(LlamaFactory, AFileOfDeepSpeedStatesTheStageAndMustAgree) {
  write("ds.json", R"({"train_micro_batch_size_per_gpu":"auto","gradient_clipping":"auto","fp8":{"enabled":true},
                       "zero_optimization":{"stage":1,"overlap_comm":true}})");
  const Import i = import("deepspeed: ds.json\nbf16: true\n");
  EXPECT_EQ(flag(i, "zero"), "1");
  EXPECT_EQ(class_of(i, "fp8.enabled"), Class::does_nothing);
  EXPECT_EQ(class_of(i, "gradient_clipping"), Class::mapped);
  write("ds.json", R"({"gradient_clipping":0.5,"zero_optimization":{"stage":3,"offload_optimizer":{"device":"cpu"}}})");
  const Import other = import("deepspeed: ds.json\n");
  EXPECT_EQ(class_of(other, "gradient_clipping"), Class::no_counterpart);
  EXPECT_EQ(class_of(other, "zero_optimization.offload_optimizer.device"), Class::no_counterpart);
  for (const auto& [sequences, ranks] : {std::pair("16", 2), {"12", 1}, {"0", 1}, {"-8", 1}}) {
    write("ds.json", std::string(R"({"train_batch_size":)") + sequences + "}");
    const Import whole = import("deepspeed: ds.json\nmax_samples: 9\n");
    EXPECT_EQ(whole.ranks.value_or(1), ranks) << sequences;
    EXPECT_EQ(class_of(whole, "train_batch_size"), ranks == 2 ? Class::mapped : Class::no_counterpart) << sequences;
  }
}

TEST_F(LlamaFactory, AdaptersHaveTheDefaultsOfTheTrainer) {
  const Import i =
      import("finetuning_type: lora\nlora_rank: 4\nlora_target: q_proj,self_attn.v_proj\npure_bf16: true\n");
  EXPECT_EQ(flag(i, "lora-rank") + " " + flag(i, "lora-alpha") + " " + flag(i, "lora-dropout"), "4 8.0 0.0");
  EXPECT_EQ(flag(i, "lora-targets"), R"(["q_proj","*.self_attn.v_proj"])");
  EXPECT_EQ(flag(i, "master"), "fp32");
  EXPECT_EQ(flag(import(""), "lora-rank") + flag(import(""), "lora-targets"), R"(8["all"])");
  EXPECT_EQ(class_of(import("use_dora: true\n"), "use_dora"), Class::no_counterpart);
  EXPECT_EQ(class_of(import("use_dora: false\n"), "use_dora"), Class::no_effect);
  EXPECT_EQ(class_of(import("lora_target: lm_head\n"), "lora_target"), Class::no_counterpart);
}

TEST_F(LlamaFactory, Bf16WeightsAndStatesAreRoundedStochastically) {
  const Import i = import("finetuning_type: full\npure_bf16: true\n");
  EXPECT_EQ(flag(i, "master") + " " + flag(i, "moments") + " " + flag(i, "precision"), "bf16 bf16 bf16");
  EXPECT_EQ(class_of(i, "pure_bf16"), Class::differs);
}

TEST_F(LlamaFactory, NamesOfTemplatesAreNotThoseOfChatTemplates) {
  EXPECT_EQ(import("").data.chat_template, "llama3");
  write("t.yaml", "model_name_or_path: m\nstage: sft\ndataset: x\ntemplate: qwen3_nothink\n");
  Options options;
  options.files = {at("t.yaml")};
  EXPECT_EQ(read(options).data.chat_template, "chatml");
  write("t.yaml", "model_name_or_path: m\nstage: sft\ndataset: x\ntemplate: qwen3\n");
  EXPECT_EQ(class_of(read(options), "template"), Class::no_counterpart);
}

TEST_F(LlamaFactory, KeysThatAreNotKnownHaveNoCounterpart) {
  const Import i = import("lerning_rate: 1\n");
  EXPECT_HOLDS(answer(i, "lerning_rate").why, "did you mean learning_rate");
  EXPECT_EQ(refused(i).size(), 1U);
  EXPECT_HOLDS(error_of([&] { (void)import("learning_rate: ${LR}\n"); }), "learning_rate: needs a number");
  std::string many;
  for (int n = 1; n <= 101; ++n) many += "lerning_rate" + std::to_string(n) + ": 1\n";
  const Import all = import(many);
  EXPECT_HOLDS(answer(all, "lerning_rate100").why, "did you mean learning_rate");
  EXPECT_EQ(answer(all, "lerning_rate101").why, "is not known") << "each suggestion takes time";
  const Import path = import("output_dir: ${HOME}/x\n");
  EXPECT_HOLDS(path.missing.back() + path.missing.front(), "refers to the environment");
  Options options;
  options.files = {at("sft.yaml")};
  options.allow = {"lerning_rate"};
  write("sft.yaml", "model_name_or_path: m\nstage: sft\nlerning_rate: 1\n");
  EXPECT_TRUE(refused(read(options)).empty());
}

TEST_F(LlamaFactory, DataIsNamedInDatasetInfo) {
  write("data/dataset_info.json", "");
  const auto missing = [&](const std::string& info) {
    write("data/dataset_info.json", info);
    write("d.yaml", "model_name_or_path: m\nstage: sft\ndataset: y\ntemplate: llama3\n");
    Options options;
    options.files = {at("d.yaml")};
    options.dataset_dir = at("data");
    const Import i = read(options);
    const auto found = std::ranges::find_if(i.missing, [](const std::string& s) { return s.starts_with("data: "); });
    return found == i.missing.end()
               ? "none: " +
                     json::dump(json::Array(i.data.train.at(0).columns.begin(), i.data.train.at(0).columns.end()))
               : *found;
  };
  write("data/y.jsonl", R"({"q":"a","r":"b"})");
  EXPECT_EQ(missing(R"({"y":{"file_name":"y.jsonl","columns":{"prompt":"q","response":"r"}}})"),
            R"(none: ["prompt=q","query=","response=r","history=","system="])");
  EXPECT_HOLDS(missing(R"({"y":{"hf_hub_url":"org/y"}})"), "is at org/y, not on this machine");
  EXPECT_HOLDS(missing(R"({"x":{"file_name":"y.jsonl"}})"), "y: not in");
  EXPECT_HOLDS(missing(R"({"y":{"file_name":"z.jsonl"}})"), "no such file");
  EXPECT_HOLDS(missing(R"({"y":{"file_name":"y.parquet"}})"), "only JSON and JSON Lines are read");
}

// 2^29 x 2^29 x 64 is 0 in 64 bits.
TEST_F(LlamaFactory, NumbersThatCannotBeMeantAreRefused) {
  const std::string half = std::to_string(1 << 29);
  const auto refusal = [&](const std::string& lines, std::int64_t ranks = 1) {
    return error_of([&] { import(lines, 10, ranks); });
  };
  EXPECT_EQ(refusal("per_device_train_batch_size: " + half + "\ngradient_accumulation_steps: " + half + "\n", 64),
            at("sft.yaml: " + half + " micro-batches of " + half +
               " sequences on 64 ranks: more sequences in a step than 1e+15"));
  EXPECT_EQ(refusal("num_train_epochs: 1e300\n"),
            at("sft.yaml: line 5: num_train_epochs: needs a number above 0, at most 1000000"));
  EXPECT_EQ(refusal("max_samples: 0\n"), at("sft.yaml: line 5: max_samples: must be from 1 to 1000000000"));
}

}  // namespace
}  // namespace fp8::foreign
