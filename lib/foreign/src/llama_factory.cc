// Source: LLaMA-Factory ff6d4d12, hparams, data and train; transformers 5.8.0, training_args.py, trainer.py and
// optimization.py.
#include <algorithm>
#include <array>
#include <sstream>

#include "accelerate.h"
#include "deepspeed.h"
#include "families.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"
#include "llama_factory_data.h"
#include "llama_factory_keys.h"
#include "mapping.h"
#include "named_files.h"
#include "trainer_rows.h"
#include "trainer_schedule.h"
#include "trainers.h"

namespace fp8::foreign {
namespace {

constexpr const char* kRounding = "bf16 weights are rounded to nearest there, stochastically here";

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) {
    const std::size_t first = part.find_first_not_of(" \t"), last = part.find_last_not_of(" \t");
    if (first != std::string::npos) parts.push_back(part.substr(first, last - first + 1));
  }
  return parts;
}

// Names in a text separated by commas, or in a list.
std::vector<std::string> names_of(const Mapping& map, const char* key) {
  const json::Value* value = map.keys().value(key);
  if (value == nullptr) return {};
  if (!value->is_array()) return parts_of(map.text(key, ""));
  std::vector<std::string> names;
  for (const json::Value& one : value->as_array())
    if (one.is_string()) names.push_back(one.as_string());
  return names;
}

class Reader {
 public:
  explicit Reader(Import& import) : import_(import), map_(import, import.documents.front()) {}

  void read() {
    find_other_files();
    stage();
    model();
    data();
    batches();
    duration();
    optimizer();
    set_trainer_schedule(map_);
    precision();
    adapters();
    megatron();
    saving();
    answer_llama_factory_features(map_);
    other_files();
    map_.keys().rest(llama_factory_keys(), trainer_rows());
  }

 private:
  // DeepSpeed's file, if the first document names one, and a file of Accelerate among the others.
  void find_other_files() {
    if (map_.has("deepspeed")) {
      const json::Value* value = map_.keys().value("deepspeed");
      if (value->is_object())
        return map_.refuse("deepspeed", "a map inside of this file is not read; name its JSON file");
      deepspeed_ = named_document(import_, map_.text("deepspeed", ""), "deepspeed");
      map_.note("deepspeed", Class::mapped, "--zero", "see the answers to its keys");
    }
    for (std::size_t i = 1; i < import_.documents.size(); ++i) {
      if (is_accelerate(import_.documents[i])) accelerate_ = &import_.documents[i];
      if (is_deepspeed(import_.documents[i])) deepspeed_ = &import_.documents[i];
    }
    if (accelerate_ != nullptr) {
      const json::Value* processes = find(*accelerate_, "num_processes");
      if (processes != nullptr && processes->is_int()) import_.ranks = processes->as_int();
    }
  }

  void stage() {
    const std::string stage = map_.text("stage", "sft");
    pretraining_ = stage == "pt";
    const bool known = stage == "sft" || pretraining_;
    map_.answer("stage", "sft", known ? Class::mapped : Class::no_counterpart, "",
                known ? "" : "preferences and rewards are not learned; stage sft comes nearest");
    const std::string type = map_.text("finetuning_type", "lora");
    lora_ = type == "lora";
    if (type == "full" || lora_)
      map_.answer("finetuning_type", "lora", Class::mapped, lora_ ? "--lora-rank" : "");
    else
      map_.refuse("finetuning_type",
                  type == "freeze" ? "all layers or none are trained; lora comes nearest" : "lora comes nearest");
    map_.note("do_train", map_.flag("do_train", true) ? Class::mapped : Class::differs, "",
              map_.flag("do_train", true) ? "" : "run.sh trains; fp8-eval evaluates");
  }

  void model() {
    if (map_.has("model_name_or_path")) import_.model_name = map_.text("model_name_or_path", "");
    if (import_.model_name && !import_.options.model)
      if (const std::string local = find_named(import_, *import_.model_name); !local.empty())
        import_.model_name = local;
    const std::string_view family = untrained_family(import_.model_name.value_or(""));
    if (!family.empty() && !import_.options.model) map_.refuse("model_name_or_path", family_reason(family));
    map_.note("model_name_or_path", Class::mapped, "fp8-convert");
    if (map_.flag("train_from_scratch", false))
      map_.refuse("train_from_scratch", "run.sh begins with the weights of the folder; fp8-init makes new ones");
  }

  void data() {
    DataPlan& plan = import_.data;
    plan.conversations = !pretraining_;
    plan.skips_bad = true;
    plan.length = map_.whole("cutoff_len", 2048);
    if (plan.length < 2) map_.keys().refuse("cutoff_len", "needs at least 2");
    const bool neat = map_.flag("neat_packing", false), packs = map_.flag("packing", pretraining_) || neat;
    plan.packed = packs && !pretraining_;
    length_and_packing(neat, packs);
    chat();
    sources();
    splits();
  }

  void length_and_packing(bool neat, bool packs) {
    const std::string length = std::to_string(import_.data.length);
    map_.answer("cutoff_len", 2048, Class::mapped,
                import_.data.packed ? "--pack " + length
                : pretraining_      ? "--seq-length " + length
                                    : "--cutoff " + length,
                pretraining_ || import_.data.packed ? "" : "longer records are cut");
    import_.data.appends_eos = pretraining_;
    if (map_.text("template", "") == "llama3") import_.data.eos_token = "<|end_of_text|>";
    if (pretraining_) {
      map_.answer(
          "packing", true, Class::differs, "--documents joined",
          packs ? "texts are joined in the order of the file, there within groups of 1000 whose remainder is left out"
                : "texts are joined and not cut");
      import_.set("documents", "joined");
      return;
    }
    map_.answer("packing", false, Class::mapped, packs ? "--pack " + length : "");
    map_.answer("neat_packing", false, Class::mapped,
                neat    ? "--documents separate"
                : packs ? "--documents joined"
                        : "",
                packs && !neat ? "records of a sequence attend to those before them, as there" : "");
    if (packs) import_.set("documents", neat ? "separate" : "joined");
  }

  // The template and the mask.
  void chat() {
    DataPlan& plan = import_.data;
    if (pretraining_) {
      map_.note("template", Class::no_effect, "", "of texts");
    } else if (map_.has("template")) {
      const std::string name = map_.text("template", "");
      constexpr std::array<std::pair<const char*, const char*>, 6> kEqual = {{{"llama3", "llama3"},
                                                                              {"qwen", "qwen"},
                                                                              {"mistral", "mistral"},
                                                                              {"llama2", "llama2"},
                                                                              {"chatml", "chatml"},
                                                                              {"qwen3_nothink", "chatml"}}};
      const auto known = std::ranges::find(kEqual, name, &std::pair<const char*, const char*>::first);
      if (known != kEqual.end()) {
        plan.chat_template = known->second;
        map_.note("template", Class::mapped, std::string("--template ") + known->second);
      } else {
        map_.refuse("template", template_reason(name));
      }
    } else {
      map_.answer("template", nullptr, Class::mapped, "", "that of the tokenizer");
    }
    const bool prompts = map_.flag("train_on_prompt", false), last = map_.flag("mask_history", false);
    plan.mask = prompts ? "all" : last ? "last" : "assistant";
    map_.answer("train_on_prompt", false, Class::mapped, "--mask " + plan.mask);
    map_.answer("mask_history", false, Class::mapped, "--mask " + plan.mask);
  }

  static std::string template_reason(const std::string& name) {
    if (name == "qwen3")
      return "answers get an empty block of thoughts there; qwen3_nothink, which is chatml here, comes nearest";
    return "is not one of llama3, qwen, mistral, llama2, chatml, qwen3_nothink; without it the template of the model "
           "is "
           "used, and fp8-template(5) describes files for others";
  }

  void sources() {
    DataPlan& plan = import_.data;
    std::string folder = import_.options.dataset_dir.value_or(map_.text("dataset_dir", "data"));
    if (!import_.options.dataset_dir)
      if (const std::string found = find_named(import_, folder); !found.empty()) folder = found;
    map_.answer("dataset_dir", "data", Class::mapped, "",
                import_.options.dataset_dir ? "--dataset-dir replaces it" : "");
    const std::vector<std::string> names = names_of(map_, "dataset"), eval = names_of(map_, "eval_dataset");
    if (names.empty()) import_.missing.emplace_back("dataset: the file names none");
    if (!names.empty()) plan.train = llama_factory_data(import_, folder, names, pretraining_);
    if (!eval.empty()) plan.eval = llama_factory_data(import_, folder, eval, pretraining_);
    map_.note("dataset", Class::mapped, "fp8-tokenize");
    map_.note("eval_dataset", Class::mapped, "--eval-data eval.h5");
    if (map_.has("max_samples")) {
      const std::int64_t most = map_.positive("max_samples", 1);
      bool several = false;
      for (std::vector<DataSource>* all : {&plan.train, &plan.eval})
        for (DataSource& source : *all) {
          source.most_records = most;
          several = several || source.files.size() > 1;
        }
      map_.note("max_samples", several ? Class::differs : Class::mapped, "--max-samples " + std::to_string(most),
                several ? "of each file, there of all files of a data set together" : "");
    }
    const std::string mix = map_.text("mix_strategy", "concat");
    map_.note("mix_strategy", mix == "concat" ? Class::mapped : Class::no_counterpart, "",
              mix == "concat" ? "" : "data sets are put one after the other");
    if (map_.flag("streaming", false)) map_.note("streaming", Class::differs, "", "samples come in another order");
  }

  void splits() {
    DataPlan& plan = import_.data;
    const double size = map_.number("val_size", 0);  // from 1 on a number of records
    if (size >= 1)
      plan.eval_records = whole_part(size);
    else
      plan.eval_share = std::clamp(size, 0.0, 0.9);
    if (size > 0)
      map_.note("val_size", Class::differs, "--eval-share", "other records are chosen");
    else
      map_.note("val_size", Class::mapped, "");
  }

  void batches() {
    Batches& b = import_.batches;
    b.micro = map_.positive("per_device_train_batch_size", 8);
    b.accumulation = map_.positive("gradient_accumulation_steps", 1);
    map_.answer("per_device_train_batch_size", 8, Class::mapped, "--batch-size " + std::to_string(b.micro));
    map_.answer("gradient_accumulation_steps", 1, Class::mapped,
                "--grad-accumulation " + std::to_string(b.accumulation));
    map_.answer("dataloader_drop_last", false, Class::mapped, "");
    import_.duration.keeps_last_batch = !map_.flag("dataloader_drop_last", false);
    const bool tokens = map_.flag("average_tokens_across_devices", true);
    import_.one_loss_per_rank = !tokens;
    map_.answer("average_tokens_across_devices", true, Class::mapped, "",
                tokens ? "the loss is the mean over the targets of all ranks, as here" : "");
    if (map_.flag("auto_find_batch_size", false))
      map_.note("auto_find_batch_size", Class::differs, "", "the batch is never halved when memory is short");
  }

  void duration() {
    Duration& d = import_.duration;
    const std::int64_t most = map_.whole("max_steps", -1);
    if (most > 0) d.steps = most;
    map_.note("max_steps", Class::mapped, most > 0 ? "--steps " + std::to_string(most) : "");
    d.epochs = map_.number("num_train_epochs", 3);
    if (!(d.epochs > 0 && d.epochs <= kMostEpochs)) map_.keys().refuse("num_train_epochs", kEpochs);
    if (most > 0)
      map_.note("num_train_epochs", Class::does_nothing, "", "max_steps is given");
    else
      map_.answer("num_train_epochs", 3.0, Class::mapped, "--steps", "steps are written as a number");
    const double steps = map_.number("warmup_steps", 0);
    const bool ratio = map_.has("warmup_ratio");
    const double share = ratio ? map_.number("warmup_ratio", 0) : steps < 1 ? steps : 0;
    if (share < 0 || share > 1)
      map_.keys().refuse(ratio ? "warmup_ratio" : "warmup_steps", "needs a share from 0 to 1");
    if (steps >= 1 && !ratio) d.warmup_steps = whole_part(steps);
    d.warmup_ratio = share;
    d.warmup_from = 0;
    if (ratio)
      map_.note("warmup_ratio", Class::mapped, "--warmup-steps --warmup-from 0",
                "rounded up; transformers 5.24 and later ignore it, for which warmup_steps may be a share");
    if (ratio)
      map_.note("warmup_steps", Class::does_nothing, "", "warmup_ratio replaces it");
    else
      map_.answer("warmup_steps", 0, Class::mapped, "--warmup-steps --warmup-from 0");
  }

  void optimizer() {
    const std::string name = map_.text("optim", "adamw_torch_fused");
    const bool plain = name == "adamw_torch" || name == "adamw_torch_fused" || name == "adamw_hf" ||
                       name == "adamw_apex_fused" || name == "adamw_torch_xla" || name == "adamw_torch_npu_fused";
    map_.answer("optim", "adamw_torch_fused", plain ? Class::mapped : Class::no_counterpart, plain ? "AdamW" : "",
                plain ? ""
                : name.find("8bit") != std::string::npos || name.find("paged") != std::string::npos
                    ? "moments of 8 bits are not kept; AdamW with --moments bf16 comes nearest"
                    : "AdamW comes nearest");
    map_.set("learning_rate", 5e-5, "lr", map_.number("learning_rate", 5e-5));
    const double b1 = map_.number("adam_beta1", 0.9), b2 = map_.number("adam_beta2", 0.999);
    const std::string betas = format_double(b1) + "," + format_double(b2);
    map_.answer("adam_beta1", 0.9, Class::mapped, "--betas " + betas);
    map_.answer("adam_beta2", 0.999, Class::mapped, "--betas " + betas);
    import_.set("betas", betas);
    map_.set("adam_epsilon", 1e-8, "eps", map_.number("adam_epsilon", 1e-8));
    map_.set("weight_decay", 0.0, "weight-decay", map_.number("weight_decay", 0));
    import_.set("decay", "matrices");
    map_.set("max_grad_norm", 1.0, "clip", map_.number("max_grad_norm", 1));
    const bool ordered = map_.flag("disable_shuffling", false);
    const std::string strategy = map_.text("train_sampling_strategy", "random");
    import_.set("sampler", ordered || strategy == "sequential" ? "sequential" : "shuffle");
    map_.note("disable_shuffling", Class::mapped, ordered ? "--sampler sequential" : "--sampler shuffle");
    map_.note("train_sampling_strategy", strategy == "group_by_length" ? Class::no_counterpart : Class::mapped,
              "--sampler", strategy == "group_by_length" ? "samples are not ordered by length" : "");
    map_.set("seed", 42, "seed", map_.whole("seed", 42), Class::differs,
             "random numbers and the order of samples are others");
    map_.note("data_seed", Class::differs, "", "the order of samples follows from --seed");
  }

  void precision() {
    const bool bf16 = map_.flag("bf16", false), pure = map_.flag("pure_bf16", false);
    if (map_.flag("fp16", false)) map_.refuse("fp16", "fp16 is not trained; --precision bf16 comes nearest");
    const bool half = map_.flag("fp16", false);
    const bool fp8 = trains_fp8(bf16 || half);
    const std::string name = fp8 ? "fp8" : bf16 || pure || half ? "bf16" : "fp32";
    import_.set("precision", name);
    map_.answer("bf16", false, Class::mapped, "--precision " + name);
    map_.note("fp16", Class::mapped, "");
    if (fp8) recipe();
    const bool weights = pure && !lora_;
    const bool zero3 = stage_of_zero() == 3;
    if (pure && zero3) map_.keys().refuse("pure_bf16", "LLaMA-Factory refuses it together with ZeRO 3");
    import_.set("master", weights ? "bf16" : "fp32");
    import_.set("moments", weights ? "bf16" : "fp32");
    if (weights)
      map_.note("pure_bf16", Class::differs, "--master bf16 --moments bf16", kRounding);
    else
      map_.answer("pure_bf16", false, pure ? Class::differs : Class::mapped, "--master fp32 --moments fp32",
                  pure ? "adapters have f32 weights here" : "trainable parameters are f32");
    const bool keeps = map_.flag("disable_gradient_checkpointing", false);
    map_.set("disable_gradient_checkpointing", false, "recompute", keeps ? "none" : "full");
  }

  std::int64_t stage_of_zero() const {
    const json::Value* stage = deepspeed_ == nullptr ? nullptr : find(*deepspeed_, "zero_optimization.stage");
    return stage != nullptr && stage->is_int() ? stage->as_int() : 0;
  }

  // FP8 is on by `fp8`, or by a file of Accelerate if the trainer's own precision does not replace it.
  bool trains_fp8(bool half) {
    if (accelerate_ != nullptr) fp8_ = accelerate_fp8(import_, *accelerate_);
    const bool on = map_.flag("fp8", false), by_file = fp8_ && !half && !map_.has("fp8");
    map_.note("fp8", Class::mapped, on ? "--precision fp8" : "");
    if (!on && map_.flag("fp8_enable_fsdp_float8_all_gather", false))
      map_.note("fp8_enable_fsdp_float8_all_gather", Class::does_nothing, "",
                "without fp8 it sets a field that nothing reads");
    if (!on) map_.note("fp8_backend", Class::does_nothing, "", "fp8 is not set");
    return on || by_file;
  }

  void recipe() {
    std::string backend = map_.text("fp8_backend", "auto");
    if (!map_.has("fp8") && fp8_ && !fp8_->backend.empty()) backend = fp8_->backend;
    if (backend == "te") {
      delayed();
    } else if (backend == "auto" || backend == "torchao") {
      import_.set("recipe", "rowwise");
      import_.set("power-of-2-scales", true);
      map_.answer("fp8_backend", "auto", Class::differs, "--recipe rowwise",
                  "the recipe that LLaMA-Factory makes and logs, with embeddings, the head and sizes that 16 does not "
                  "divide in bf16; it hands none to Accelerate, which then has its own");
    } else {
      map_.refuse("fp8_backend", "MS-AMP and others are not trained; torchao, --recipe rowwise, comes nearest");
      import_.set("recipe", "rowwise");
    }
    map_.note("fp8_enable_fsdp_float8_all_gather", Class::does_nothing, "",
              "is written to a variable of the environment that nothing reads");
  }

  void delayed() {
    const AccelerateFp8 from = fp8_.value_or(AccelerateFp8{});
    const std::int64_t history = from.history.value_or(16);
    import_.set("recipe", "delayed");
    import_.set("fp8-format", from.format.value_or("hybrid"));
    import_.set("amax-history", history);
    import_.set("amax-algo", from.algorithm.value_or("max"));
    import_.set("margin", from.margin.value_or(0));
    import_.set("fp8-all-gather", false);
    import_.set("fp8-lm-head", true);
    map_.answer("fp8_backend", "auto", Class::mapped,
                "--recipe delayed --fp8-format " + from.format.value_or("hybrid") + " --amax-history " +
                    std::to_string(history) + " --amax-algo " + from.algorithm.value_or("max") + " --fp8-lm-head",
                "Accelerate converts every linear whose sizes 16 divides, the head too");
  }

  void adapters() {
    if (!lora_) return;
    const bool continues = map_.has("adapter_name_or_path") && !map_.flag("create_new_adapter", false);
    const std::vector<std::string> folders = names_of(map_, "adapter_name_or_path");
    if (continues && folders.size() == 1) {
      const std::string local = find_named(import_, folders.front());
      if (local.empty()) import_.missing.push_back("adapter_name_or_path: " + folders.front() + ": no such folder");
      import_.set("lora", local.empty() ? folders.front() : local);
      map_.note("adapter_name_or_path", Class::mapped, "--lora " + folders.front());
      for (const char* key : {"lora_rank", "lora_alpha", "lora_target", "use_rslora"})
        map_.note(key, Class::does_nothing, "", "the adapter has its own");
    } else {
      if (map_.has("adapter_name_or_path"))
        map_.refuse("adapter_name_or_path", "adapters are not merged first; fp8-convert --merge-lora does that");
      new_adapters();
    }
    map_.set("lora_dropout", 0.0, "lora-dropout", map_.number("lora_dropout", 0));
    map_.note("create_new_adapter", Class::mapped, "");
  }

  void new_adapters() {
    const std::int64_t rank = map_.whole("lora_rank", 8);
    if (rank < 1) map_.keys().refuse("lora_rank", "needs at least 1");
    map_.set("lora_rank", 8, "lora-rank", rank);
    const double alpha =
        map_.number("lora_alpha", 0) != 0 ? map_.number("lora_alpha", 0) : 2 * static_cast<double>(rank);
    map_.set("lora_alpha", 2 * rank, "lora-alpha", alpha, Class::mapped,
             map_.has("lora_alpha") ? "" : "twice the rank");
    map_.set("use_rslora", false, "rslora", map_.flag("use_rslora", false));
    std::vector<std::string> targets = names_of(map_, "lora_target");
    if (targets.empty()) targets = {"all"};
    json::Array globs;
    std::string refused;
    for (const std::string& target : targets) {
      const bool strange = target.find_first_of("\\^$()|[]+?*") != std::string::npos;
      if (strange || target == "lm_head" || target == "embed_tokens")
        refused = strange ? "is a pattern, which no linear is named" : target + " gets no adapter";
      else
        globs.emplace_back(target.find('.') == std::string::npos ? target : "*." + target);
    }
    const bool adds = !refused.empty();
    if (globs.empty()) globs.emplace_back("all");
    map_.answer("lora_target", "all", adds ? Class::no_counterpart : Class::mapped, flag_text("lora-targets", globs),
                refused);
    import_.set("lora-targets", globs);
  }

  // Megatron Core and Megatron Bridge, which an environment variable turns on.
  void megatron() {
    constexpr std::array<std::pair<const char*, const char*>, 3> kSizes = {{{"tensor_model_parallel_size", "tp"},
                                                                            {"pipeline_model_parallel_size", "pp"},
                                                                            {"expert_model_parallel_size", "ep"}}};
    for (const auto& [key, flag] : kSizes)
      if (map_.has(key)) map_.set(key, 1, flag, map_.whole(key, 1));
    for (const char* key : {"context_parallel_size", "hyper_parallel_cp_size"})
      if (map_.whole(key, 1) > 1) map_.refuse(key, "sequences are not split over ranks");
    if (map_.has("recompute_granularity"))
      map_.set("recompute_granularity", nullptr, "recompute", map_.text("recompute_granularity", "full"));
    if (map_.has("moe_aux_loss_coef") && map_.number("moe_aux_loss_coef", 0) != 0)
      map_.set("moe_aux_loss_coef", nullptr, "aux-loss", map_.number("moe_aux_loss_coef", 0), Class::differs,
               "is the mean over layers there, whose tokens are counted together");
  }

  void saving() {
    const std::string strategy = map_.text("save_strategy", "steps");
    const double every = map_.number("save_steps", 500);
    if (strategy == "steps" && every >= 1) import_.set("save-every", whole_part(every));
    map_.note("save_steps", Class::mapped, "--save-every");
    if (map_.has("save_total_limit") && map_.whole("save_total_limit", 0) > 0)
      import_.set("keep", map_.whole("save_total_limit", 0));
    map_.note("save_total_limit", Class::mapped, "--keep");
    const bool evaluates = import_.data.eval_share > 0 || import_.data.eval_records || !import_.data.eval.empty();
    std::string by = map_.text("eval_strategy", map_.text("evaluation_strategy", "no"));
    const double steps = map_.number("eval_steps", map_.number("logging_steps", 500));
    if (evaluates && by == "steps" && steps >= 1) import_.set("eval-every", whole_part(steps));
    map_.note("eval_steps", Class::no_effect, "--eval-every");
    if (map_.has("resume_from_checkpoint")) {
      const json::Value* value = map_.keys().value("resume_from_checkpoint");
      if (value->is_bool())
        map_.note("resume_from_checkpoint", Class::no_effect, "", "run.sh resumes by itself");
      else
        map_.refuse("resume_from_checkpoint",
                    "checkpoints of the Trainer are not read; start from their weights with --model");
    }
  }

  void other_files() {
    const json::Value* precision = import_.flags.find("precision");
    const bool fp8 = precision != nullptr && precision->is_string() && precision->as_string() == "fp8";
    if (accelerate_ != nullptr) answer_accelerate(import_, *accelerate_, fp8);
    if (deepspeed_ != nullptr) answer_deepspeed(import_, *deepspeed_);
    fsdp();
  }

  void fsdp() {
    std::string words;
    for (const std::string& word : names_of(map_, "fsdp")) words += word + " ";
    if (words.find("offload") != std::string::npos) return map_.refuse("fsdp", "nothing is offloaded");
    if (!map_.has("fsdp")) return;
    const bool grads = words.find("shard_grad_op") != std::string::npos || words.find("zero2") != std::string::npos;
    map_.set("fsdp", nullptr, "zero", grads ? "2" : "3");
  }

  Import& import_;
  Mapping map_;
  const Document* deepspeed_ = nullptr;
  const Document* accelerate_ = nullptr;
  std::optional<AccelerateFp8> fp8_;
  bool pretraining_ = false, lora_ = false;
};

}  // namespace

int score_llama_factory(const Document& document) {
  return keys_in(document, {"model_name_or_path",
                            "stage",
                            "finetuning_type",
                            "dataset",
                            "dataset_dir",
                            "template",
                            "cutoff_len",
                            "lora_rank",
                            "lora_target",
                            "pure_bf16",
                            "fp8_backend",
                            "neat_packing",
                            "preprocessing_num_workers",
                            "overwrite_cache",
                            "per_device_train_batch_size",
                            "max_samples",
                            "plot_loss",
                            "train_dataset",
                            "model_class",
                            "dist_config"});
}

// Keys of engine v1, which has a format of its own.
constexpr std::array kEngineV1 = std::to_array<KeyRow>(
    {{"*", Class::no_counterpart, "", "a key of LLaMA-Factory's engine v1, of which no configuration is read"}});

void read_llama_factory(Import& import) {
  const Document& document = import.documents.front();
  const bool v1 = find(document, "model_name_or_path") == nullptr &&
                  (find(document, "train_dataset") != nullptr || find(document, "model_class") != nullptr);
  if (!v1) return Reader(import).read();
  Keys(document, import.answers).rest(kEngineV1);
  import.missing.push_back(document.path +
                           ": is for LLaMA-Factory's engine v1; write its settings with the keys of the "
                           "default engine, such as model_name_or_path and per_device_train_batch_size");
}

}  // namespace fp8::foreign
