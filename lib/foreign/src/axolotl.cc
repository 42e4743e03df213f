// Axolotl: flat YAML over Hugging Face's Trainer. This source reads model, types, optimizer, schedule, batches and
// mesh. Source: src/axolotl/utils/schemas/*.py, utils/config/__init__.py, core/builders/base.py, core/trainers/base.py,
// utils/trainer.py and monkeypatch/accelerate/fsdp2.py at commit 067b021c; transformers 5.8, trainer.py.
#include "axolotl.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "deepspeed.h"
#include "families.h"
#include "fp8/base/text.h"
#include "named_files.h"
#include "trainer_rows.h"
#include "trainers.h"

namespace fp8::foreign {
namespace {

bool is_fsdp(const Mapping& m) { return m.has("fsdp_config") || m.has("fsdp"); }

bool is_fsdp2(const Mapping& m) {
  return m.text("fsdp_version", m.text("fsdp_config.fsdp_version", "1")) == "2" || m.has("dp_shard_size");
}

void read_model(Mapping& m) {
  Import& import = m.import();
  if (!m.has("base_model")) {
    import.missing.emplace_back("model: the file names none");
  } else {
    import.model_name = m.text("base_model", "");
    const std::string_view family = import.options.model ? std::string_view() : untrained_family(*import.model_name);
    if (family.empty())
      m.note("base_model", Class::mapped, "fp8-convert");
    else
      m.refuse("base_model", family_reason(family));
  }
  const std::string type = m.text("model_type", "AutoModelForCausalLM");
  if (type.ends_with("ForCausalLM") || type == "AutoModel")
    m.note("model_type", Class::no_effect, {}, "config.json names the model");
  else
    m.refuse("model_type", "only causal language models are trained here");
}

// Sets types of weights and moments in bf16.
void set_bf16(Mapping& m, const char* path, const json::Value& value, const std::string& precision) {
  Import& import = m.import();
  const bool f32 = has_adapter(m) || m.has("deepspeed") || (is_fsdp(m) && !is_fsdp2(m));
  if (f32) {
    import.set("master", "fp32");
    import.set("moments", "fp32");
    m.answer(path, value, Class::mapped, precision + " --master fp32 --moments fp32",
             has_adapter(m)       ? "adapters are f32"
             : m.has("deepspeed") ? "DeepSpeed keeps f32 weights"
                                  : "FSDP keeps f32 weights where it computes in bf16");
    return;
  }
  import.set("master", "bf16");
  import.set("moments", "bf16");
  m.answer(path, value, Class::differs, precision + " --master bf16 --moments bf16",
           "weights and moments are bf16 there too; here they are rounded stochastically");
}

void read_fp8(Mapping& m) {
  Import& import = m.import();
  if (!m.flag("fp8", false)) {
    m.note("fp8", Class::mapped, {}, "off");
    m.note("fp8_enable_fsdp_float8_all_gather", Class::does_nothing, {}, "fp8 is not true");
    return;
  }
  import.set("precision", "fp8");
  import.set("recipe", "tensorwise");
  const json::Array filter{"model.layers.0.self_attn.q_proj"};
  import.set("filter", filter);
  m.note("fp8", Class::mapped, "--precision fp8 --recipe tensorwise " + flag_text("filter", filter),
         "Accelerate leaves out the first and the last linear, which is the LM head");
  m.set("fp8_enable_fsdp_float8_all_gather", false, "fp8-all-gather",
        m.flag("fp8_enable_fsdp_float8_all_gather", false));
}

void read_types(Mapping& m) {
  Import& import = m.import();
  const std::string bf16 = m.text("bf16", "auto");
  const bool half = m.flag("fp16", false) || m.flag("float16", false);
  const bool wide = bf16 == "false" && !m.flag("bfloat16", false);
  for (const char* path : {"fp16", "float16"})
    if (m.flag(path, false) && (wide || bf16 == "auto"))
      m.refuse(path, "fp16 is not computed here; the nearest is bf16: true");
    else
      m.note(path, Class::mapped, {}, "off");
  m.note("float32", Class::does_nothing, {}, "read by nothing but a check");
  if (wide && !half) {
    import.set("precision", "fp32");
    import.set("master", "fp32");
    import.set("moments", "fp32");
    m.note("bf16", Class::mapped, "--precision fp32");
  } else {
    import.set("precision", "bf16");
    set_bf16(m, m.has("bfloat16") && !m.has("bf16") ? "bfloat16" : "bf16", "auto", "--precision bf16");
  }
  m.note("bf16", Class::mapped, "--precision bf16");
  m.note("bfloat16", Class::mapped, "--precision bf16");
  read_fp8(m);
}

std::string optimizer_reason(const std::string& name) {
  if (name.find("8bit") != std::string::npos) return "moments in 8 bits are not built here";
  if (name.find("4bit") != std::string::npos) return "moments in 4 bits are not built here";
  if (name.find("fp8") != std::string::npos) return "moments in FP8 are not built here";
  if (name.find("paged") != std::string::npos) return "moments in the memory of the CPU are not built here";
  return name + " is not built here";
}

void read_optimizer(Mapping& m) {
  const std::string name = m.text("optimizer", "adamw_torch_fused");
  constexpr std::array kPlain = {"adamw_torch_fused", "adamw_torch",      "adamw",
                                 "adamw_hf",          "adamw_apex_fused", "adamw_anyprecision"};
  if (std::ranges::find(kPlain, name) != kPlain.end())
    m.answer("optimizer", "adamw_torch_fused", Class::mapped, {}, "AdamW");
  else
    m.refuse("optimizer", optimizer_reason(name) + "; the nearest is adamw_torch_fused");
  if (!m.has("learning_rate")) m.import().missing.emplace_back("learning_rate: the file states none");
  m.set("learning_rate", {}, "lr", m.number("learning_rate", 0));
  m.set("weight_decay", 0.0, "weight-decay", m.number("weight_decay", 0), Class::mapped,
        "decays tensors of two or more dimensions, embeddings too");
  m.import().set("decay", "matrices");
  const double first = m.number("adam_beta1", 0.9), second = m.number("adam_beta2", 0.999);
  // Adam's betas are given together or not at all where Axolotl builds the optimizer; the Trainer takes each.
  const std::string betas = format_double(first) + "," + format_double(second);
  m.set("adam_beta1", 0.9, "betas", betas);
  m.answer("adam_beta2", 0.999, Class::mapped, "--betas " + betas);
  m.set("adam_epsilon", 1e-8, "eps", m.number("adam_epsilon", 1e-8));
  m.set("max_grad_norm", 1.0, "clip", m.number("max_grad_norm", 1));
}

void read_warmup(Mapping& m, bool warms) {
  Duration& duration = m.import().duration;
  if (!warms) {
    duration.warmup_steps = 0;
    for (const char* path : {"warmup_steps", "warmup_ratio"})
      m.note(path, Class::does_nothing, {}, "schedule constant has no warm-up");
    return;
  }
  duration.warmup_from = 0;
  constexpr const char* kFirst = "the rate of the first step is 0";
  const double steps = m.number("warmup_steps", -1), share = m.number("warmup_ratio", -1);
  if (steps >= 0) {
    // A number below 1 is a share, as in transformers 5.
    if (steps < 1)
      duration.warmup_ratio = steps;
    else
      duration.warmup_steps = steps == 1 ? 2 : whole_part(steps);
    m.note("warmup_steps", Class::mapped, "--warmup-steps --warmup-from 0",
           steps == 1               ? "1 becomes 2 there"
           : steps < 1 && steps > 0 ? "a share of all steps"
                                    : kFirst);
    m.note("warmup_ratio", Class::does_nothing, {}, "warmup_steps decides");
    return;
  }
  duration.warmup_rule = [share](std::int64_t all) {
    const double n = static_cast<double>(all);
    const auto warmup = whole_part(share >= 0 ? share * n : std::min(std::trunc(0.03 * n), 100.0));
    return warmup == 1 ? std::int64_t{2} : warmup;
  };
  if (share >= 0)
    m.note("warmup_ratio", Class::mapped, "--warmup-steps --warmup-from 0", "rounded down, and 1 becomes 2");
  else
    m.answer("warmup_steps", {}, Class::mapped, "--warmup-steps --warmup-from 0",
             "3 % of all steps, 100 at most; 1 becomes 2");
}

void read_schedule(Mapping& m) {
  Import& import = m.import();
  const std::string name = m.text("lr_scheduler", "cosine");
  const bool constant = name == "constant" || name == "constant_with_warmup";
  if (constant || name == "cosine" || name == "linear")
    m.set("lr_scheduler", "cosine", "schedule", constant ? "constant" : name);
  else
    m.refuse("lr_scheduler", name + " is not a schedule here; the nearest is cosine");
  read_warmup(m, name != "constant");
  const double ratio = m.number("cosine_min_lr_ratio", 0), flat = m.number("cosine_constant_lr_ratio", 0);
  const bool cosine = name == "cosine";
  if (cosine && m.has("cosine_min_lr_ratio"))
    m.set("cosine_min_lr_ratio", {}, "min-lr", ratio * m.number("learning_rate", 0));
  m.note("cosine_min_lr_ratio", Class::does_nothing, {}, "read only by schedule cosine");
  if (!cosine || flat <= 0 || ratio <= 0)
    m.note("cosine_constant_lr_ratio", Class::does_nothing, {}, "read only by schedule cosine with a least rate");
  else if (const std::int64_t steps = m.whole("max_steps", 0); steps > 0)
    m.set("cosine_constant_lr_ratio", {}, "schedule-steps", whole_part(flat * static_cast<double>(steps)));
  else
    m.refuse("cosine_constant_lr_ratio", "state max_steps, of which this is a share");
  if (!constant) import.set("min-lr", cosine ? ratio * m.number("learning_rate", 0) : 0.0);
  if (m.flag("lr_quadratic_warmup", false) && cosine) m.refuse("lr_quadratic_warmup", "the warm-up is linear here");
  m.note("lr_quadratic_warmup", Class::mapped, {}, "off");
}

void read_batches(Mapping& m) {
  Import& import = m.import();
  Batches& b = import.batches;
  b.micro = m.positive("micro_batch_size", 1);
  m.answer("micro_batch_size", 1, Class::mapped, "--batch-size " + std::to_string(b.micro));
  const std::int64_t all = m.whole("batch_size", 0);
  b.accumulation = m.positive("gradient_accumulation_steps", all > 0 ? std::max<std::int64_t>(all / b.micro, 1) : 1);
  m.answer("gradient_accumulation_steps", 1, Class::mapped, "--grad-accumulation " + std::to_string(b.accumulation));
  if (m.has("gradient_accumulation_steps"))
    m.note("batch_size", Class::does_nothing, {}, "gradient_accumulation_steps decides");
  m.note("batch_size", Class::mapped, "--grad-accumulation", "divided by micro_batch_size");
  Duration& d = import.duration;
  d.epochs = m.number("num_epochs", 1);
  if (!(d.epochs > 0 && d.epochs <= kMostEpochs)) m.keys().refuse("num_epochs", kEpochs);
  d.rounds_once = true;
  if (m.whole("max_steps", 0) > 0) {
    d.steps = m.whole("max_steps", 0);
    m.note("max_steps", Class::mapped, "--steps " + std::to_string(*d.steps));
    m.note("num_epochs", Class::does_nothing, {}, "max_steps decides");
  } else {
    m.note("max_steps", Class::mapped, {}, "num_epochs decides");
    m.answer("num_epochs", 1.0, Class::mapped, "--steps", "records times epochs over the batch, rounded up");
  }
  m.set("seed", 42, "seed", m.whole("seed", 42), Class::differs, "another generator: another order of sequences");
}

void read_mesh(Mapping& m) {
  Import& import = m.import();
  const std::int64_t replicate = m.positive("dp_replicate_size", 1), tp = m.positive("tensor_parallel_size", 1),
                     ep = m.positive("expert_parallel_size", 1),
                     cp = std::max(m.positive("context_parallel_size", 1), m.positive("sequence_parallel_degree", 1));
  m.set("dp_replicate_size", 1, "dp-replicate", replicate);
  m.set("tensor_parallel_size", 1, "tp", tp);
  m.set("expert_parallel_size", 1, "ep", ep);
  for (const char* path : {"context_parallel_size", "sequence_parallel_degree"})
    if (cp > 1)
      m.refuse(path, "sequences are not divided over ranks here");
    else
      m.note(path, Class::mapped, {}, "off");
  if (m.has("dp_shard_size")) {
    const std::int64_t shard = m.positive("dp_shard_size", 1);
    m.set("dp_shard_size", {}, "dp-shard", shard);
    import.ranks = product_of({shard, replicate, tp, cp});
  } else {
    m.assume_ranks(product_of({std::max(replicate, ep), tp}));
  }
  import.set("reduce-dtype", "f32");
}

void read_sharding(Mapping& m) {
  Import& import = m.import();
  const std::string strategy =
      m.text("fsdp_config.sharding_strategy", m.text("fsdp_config.fsdp_sharding_strategy", "FULL_SHARD"));
  const bool grads = strategy == "SHARD_GRAD_OP" || strategy == "2";
  const std::string zero = !is_fsdp(m) && !m.has("dp_shard_size") ? "1" : grads ? "2" : "3";
  import.set("zero", zero);
  m.note("fsdp", Class::mapped, "--zero " + zero);
  for (const char* path : {"fsdp_config.sharding_strategy", "fsdp_config.fsdp_sharding_strategy",
                           "fsdp_config.reshard_after_forward", "fsdp_config.fsdp_reshard_after_forward"})
    m.note(path, Class::mapped, "--zero " + zero);
  const std::string checkpointing = m.text("gradient_checkpointing", "false");
  bool recompute = checkpointing.starts_with("offload") || m.flag("gradient_checkpointing", false);
  for (const char* path : {"fsdp_config.activation_checkpointing", "fsdp_config.fsdp_activation_checkpointing"}) {
    recompute = recompute || m.flag(path, false);
    m.note(path, Class::mapped, m.flag(path, false) ? "--recompute full" : "");
  }
  m.set("gradient_checkpointing", false, "recompute", recompute ? "full" : "none");
  for (const char* path : {"fsdp_config.offload_params", "fsdp_config.fsdp_offload_params"})
    if (m.flag(path, false))
      m.refuse(path, "weights are not kept in the memory of the CPU here");
    else
      m.note(path, Class::mapped, {}, "off");
  if (!m.has("deepspeed")) return;
  const std::string name = m.text("deepspeed", "");
  const Document* file = named_document(import, name, "DeepSpeed's configuration");
  m.note("deepspeed", Class::mapped, "--zero");
  if (file != nullptr) answer_deepspeed(import, *file);
}

void read_losses(Mapping& m) {
  const Import& import = m.import();
  const std::int64_t ranks = import.options.ranks.value_or(import.ranks.value_or(1));
  m.answer("average_tokens_across_devices", false, ranks > 1 ? Class::differs : Class::mapped, {},
           ranks > 1 ? "each rank averages over its own targets there, over those of all ranks here"
                     : "one rank: the mean over its targets");
}

void read_saving(Mapping& m) {
  if (const double steps = m.number("save_steps", 0); steps >= 1)
    m.set("save_steps", {}, "save-every", whole_part(steps));
  if (const std::int64_t keep = m.whole("save_total_limit", 0); keep > 0) m.set("save_total_limit", {}, "keep", keep);
  if (const double steps = m.number("eval_steps", 0); steps >= 1 && m.number("val_set_size", 0) > 0)
    m.set("eval_steps", {}, "eval-every", whole_part(steps));
}

}  // namespace

bool has_adapter(const Mapping& m) {
  const std::string adapter = m.text("adapter", "");
  return adapter == "lora" || adapter == "qlora";
}

int score_axolotl(const Document& document) {
  return keys_in(document, {"base_model", "micro_batch_size", "sequence_len", "datasets", "val_set_size", "adapter",
                            "sample_packing", "num_epochs", "dataset_prepared_path", "load_in_4bit"});
}

void read_axolotl(Import& import) {
  Mapping m(import, import.documents.front());
  read_model(m);
  read_axolotl_adapter(m);
  read_types(m);
  read_optimizer(m);
  read_schedule(m);
  read_batches(m);
  read_axolotl_data(m);
  read_mesh(m);
  read_sharding(m);
  read_losses(m);
  read_saving(m);
  read_axolotl_plugins(m);
  m.keys().rest(axolotl_rows(), trainer_rows());
}

}  // namespace fp8::foreign
