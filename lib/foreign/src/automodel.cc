// NeMo AutoModel: YAML whose sections name Python objects (`_target_`) and their arguments. This source reads what is
// neither model nor data: optimizer, schedule, steps, mesh, losses, and what has no effect.
// Source: nemo_automodel/recipes/llm/train_ft.py, recipes/{_typed_config,_dist_utils}.py, components/optim/*.py,
// components/training/step_scheduler.py and components/loss/*.py at commit 36044ad3.
#include "automodel.h"

#include <algorithm>
#include <array>
#include <string>

#include "trainers.h"

namespace fp8::foreign {
namespace {

constexpr std::string_view kStudent = "distillation from another model is not trained here";
constexpr std::string_view kSpeed = "how speed is measured";
constexpr std::string_view kOld = "a section of older releases that is not read any more";
constexpr std::string_view kQuant = "models in 4 or 8 bits are not trained here; the nearest is LoRA on FP8 weights";

constexpr std::array<KeyRow, 66> kRows = {{
    {"ci.*", Class::no_effect, "", "settings of the tests of AutoModel"},
    {"benchmark.*", Class::no_effect, "", kSpeed},
    {"skypilot.*", Class::no_effect, "", "how the job is started"},
    {"slurm.*", Class::no_effect, "", "how the job is started"},
    {"wandb.*", Class::no_effect, "", "where metrics go: see fp8-log"},
    {"mlflow.*", Class::no_effect, "", "where metrics go: see fp8-log"},
    {"comet.*", Class::no_effect, "", "where metrics go: see fp8-log"},
    {"nvtx", Class::no_effect, "", "marks for a profiler: see --profile"},
    {"prewarm.*", Class::no_effect, "", "tuning of kernels"},
    {"tool_call_eval.*", Class::no_effect, "", "an evaluation beside the loss"},
    {"moe_metrics.*", Class::no_effect, "", "metrics of experts: records have them"},
    {"mfu.*", Class::no_effect, "", kSpeed},
    {"dist_env.*", Class::no_effect, "", "how processes find each other"},
    {"compile.*", Class::no_effect, "", "kernels are compiled in advance here"},
    {"sdpa_method*", Class::no_effect, "", "kernels of attention"},
    {"magi*", Class::no_effect, "", "kernels of attention"},
    {"autopipeline.*", Class::does_nothing, "", kOld},
    {"parallelizer.*", Class::does_nothing, "", kOld},
    {"distributed_config.*", Class::does_nothing, "", kOld},
    {"tokenizer.*", Class::does_nothing, "", "the tokenizer is that of the model or of the data set"},
    {"longalign", Class::does_nothing, "", "read by nothing"},
    {"_*", Class::does_nothing, "", "read by nothing: a name for other keys, or a section that is switched off"},
    {"kd_*", Class::no_counterpart, "", kStudent},
    {"teacher_*", Class::no_counterpart, "", kStudent},
    {"separate_meshes", Class::no_counterpart, "", kStudent},
    {"quantization.*", Class::no_counterpart, "", kQuant},
    {"qat.*", Class::no_counterpart, "", "training for integers is not done here; the nearest is fp8-quantize"},
    {"neftune*", Class::no_counterpart, "", "noise on embeddings (NEFTune) is not added here"},
    {"embedding_row_repair.*", Class::no_counterpart, "", "rows of embeddings are not repaired here"},
    {"mtp.*", Class::no_counterpart, "", "heads that predict several tokens are not trained here"},
    {"optimizer.foreach", Class::no_effect, "", "kernels of the optimizer"},
    {"optimizer.fused", Class::no_effect, "", "kernels of the optimizer"},
    {"optimizer.adam_w_mode", Class::mapped, "", "AdamW"},
    {"optimizer.bias_correction", Class::mapped, "", "on"},
    {"optimizer.master_weights", Class::mapped, "--master fp32", ""},
    {"optimizer.master_weight_dtype", Class::mapped, "--master fp32", ""},
    {"optimizer.exp_avg*", Class::mapped, "--moments fp32", ""},
    {"optimizer.store_param_remainders", Class::no_effect, "", "how f32 weights are stored"},
    {"optimizer.amsgrad", Class::mapped, "", "off"},
    {"optimizer.param_group_overrides*", Class::no_counterpart, "", "all tensors have one rate here"},
    {"optimizer.*", Class::no_counterpart, "", "an argument of an optimizer that is not built here"},
    {"lr_scheduler.wd_incr_*", Class::mapped, "", "the weight decay is constant"},
    {"lr_scheduler.use_checkpoint_opt_param_scheduler", Class::no_effect, "", "how a run is resumed"},
    {"lr_scheduler.override_opt_param_scheduler", Class::no_effect, "", "how a run is resumed"},
    {"lr_scheduler.max_lr", Class::no_counterpart, "", "state the rate as optimizer.lr"},
    {"lr_scheduler.*", Class::no_counterpart, "", "an argument of the schedule that is not read here"},
    {"step_scheduler.gc_every_steps", Class::no_effect, "", "memory of Python"},
    {"step_scheduler.log_remote_every_steps", Class::no_effect, "", "every step has a record here"},
    {"step_scheduler.loss_average_window_steps", Class::no_effect, "", "a metric"},
    {"step_scheduler.save_checkpoint_every_epoch", Class::no_effect, "", "when checkpoints are written"},
    {"step_scheduler.preemption_signal", Class::no_effect, "", "how a run stops"},
    {"step_scheduler._target_", Class::mapped, "", ""},
    {"checkpoint.restore_from", Class::no_counterpart, "", "checkpoints of PyTorch are not read: use --model"},
    {"checkpoint.*", Class::no_effect, "", "how checkpoints are read and written; the folder is named in run.sh"},
    {"distributed._target_", Class::mapped, "", "FSDP2"},
    {"distributed.mp_policy._target_", Class::mapped, "", "types of a computation"},
    {"distributed.mp_policy.cast_forward_inputs", Class::mapped, "", "types of a computation"},
    {"distributed.mp_policy.output_dtype", Class::mapped, "", "types of a computation"},
    {"distributed.offload_policy*", Class::no_counterpart, "", "weights are not kept in the memory of the CPU here"},
    {"distributed.autocast_dtype", Class::no_counterpart, "", "types of a computation that are not built here"},
    {"distributed.moe.lm_head_precision", Class::differs, "", "the LM head is computed in bf16 here"},
    {"distributed.multimodal*", Class::no_counterpart, "", "vision models are not trained here"},
    {"distributed.tp_plan", Class::no_effect, "", "which linears are divided, and how"},
    {"distributed.*", Class::no_effect, "", "how weights, gradients and layers are divided, and in which order"},
    {"rng.*", Class::does_nothing, "", "the generator is that of the key seed"},
    {"loss_fn.*", Class::no_effect, "", "memory of the loss"},
}};

void read_recipe(Mapping& m) {
  const std::string path = m.has("recipe._target_") ? "recipe._target_" : "recipe";
  const std::string name = m.text(path, "TrainFinetuneRecipeForNextTokenPrediction");
  if (name.find("Benchmark") != std::string::npos)
    m.refuse(path, "a benchmark measures steps on random ids; the nearest is fp8-bench");
  else if (is_python_name(name, "TrainFinetuneRecipeForNextTokenPrediction"))
    m.note(path, Class::mapped, "fp8-step");
  else
    m.refuse(path, "only the prediction of the next token is trained here");
}

bool is_muon(std::string_view name) {
  return name == "muon" || (is_python_name(name, "Muon") && !name.starts_with("torch."));
}

// The rate of the section optimizer, or the default of its class.
double rate_of(const Mapping& m) {
  const std::string name = m.text("optimizer._target_", "torch.optim.AdamW");
  return m.number("optimizer.lr", is_muon(name) ? 5e-4 : name.starts_with("torch.") ? 1e-3 : 1e-4);
}

// Muon of the package dion. Defaults are those of MuonConfig; source: dion/muon.py at commit 0c205499.
void read_muon(Mapping& m) {
  Import& import = m.import();
  import.set("optimizer", "muon");
  m.answer("optimizer._target_", "torch.optim.AdamW", Class::differs, "--optimizer muon",
           "other coefficients in each of the five iterations there; routers and adapters have Muon there, AdamW here");
  const double lr = rate_of(m), decay = m.number("optimizer.weight_decay", 0);
  m.set("optimizer.lr", 5e-4, "lr", lr);
  m.need("optimizer.mu", 0.95, "the momentum of Muon is 0.95 here");
  if (m.flag("optimizer.nesterov", false))
    m.note("optimizer.nesterov", Class::mapped, {}, "on");
  else
    m.answer("optimizer.nesterov", false, Class::differs, {}, "Nesterov momentum is on here");
  const std::string scale = m.text("optimizer.adjust_lr", "spectral_norm");
  const bool rms = scale == "rms_norm";
  m.set("optimizer.adjust_lr", "spectral_norm", "muon-scale", rms ? "rms" : "original",
        rms ? Class::mapped : Class::differs,
        rms                        ? ""
        : scale == "spectral_norm" ? "sqrt(rows / columns) there, at least 1 here"
                                   : "no factor there, at least 1 here");
  const std::string other = m.text("optimizer.scalar_opt", "adamw");
  if (other == "adamw")
    m.note("optimizer.scalar_opt", Class::mapped, {}, "AdamW");
  else
    m.refuse("optimizer.scalar_opt", other + " is not built here; the nearest is adamw");
  for (const char* path : {"optimizer.scalar_lr", "optimizer.embed_lr"})
    m.need(path, lr, "Muon and AdamW have one rate here");
  if (m.has("optimizer.lm_head_lr"))
    m.need("optimizer.lm_head_lr", lr, "Muon and AdamW have one rate here");
  else
    m.answer("optimizer.lm_head_lr", {}, Class::differs, {}, "lr / sqrt(columns) there, lr here");
  m.set("optimizer.scalar_betas", json::Array{0.9, 0.999}, "betas", m.pair("optimizer.scalar_betas", 0.9, 0.999));
  m.set("optimizer.scalar_eps", 1e-8, "eps", m.number("optimizer.scalar_eps", 1e-8));
  m.note("optimizer.betas", Class::does_nothing, {}, "scalar_betas is read");
  m.note("optimizer.epsilon", Class::no_effect, {}, "added to the norm of a gradient");
  for (const char* path : {"optimizer.flatten", "optimizer.use_triton", "optimizer.no_compile"})
    m.note(path, Class::no_effect, {}, "kernels of the optimizer");
  import.set("decay", "matrices");
  m.set("optimizer.weight_decay", 0.0, "weight-decay", decay, decay == 0 ? Class::mapped : Class::differs,
        decay == 0 ? "" : "norms and biases decay too there, and embedding and LM head do not");
}

void read_optimizer(Mapping& m) {
  const std::string name = m.text("optimizer._target_", "torch.optim.AdamW");
  if (is_muon(name)) return read_muon(m);
  const bool l2 = is_python_name(name, "Adam") || name == "adam";
  const bool fused = is_python_name(name, "FusedAdam") || name == "fused_adam";
  const bool known = l2 || fused || is_python_name(name, "AdamW") || name == "adamw";
  // torch.optim.Adam has 0; the other classes, and the short name adam, have 0.01.
  const double fallback = name == "torch.optim.Adam" ? 0.0 : 0.01;
  const double decay = m.number("optimizer.weight_decay", fallback);
  const bool plain_l2 = l2 || (fused && !m.flag("optimizer.adam_w_mode", true));
  if (known)
    m.answer("optimizer._target_", "torch.optim.AdamW", Class::mapped, "",
             plain_l2 && decay == 0 ? "without weight decay Adam is AdamW" : "AdamW");
  else
    m.refuse("optimizer._target_", name.substr(name.rfind('.') + 1) + " is not built here; the nearest is AdamW");
  m.set("optimizer.lr", known && name.starts_with("torch.") ? 1e-3 : 1e-4, "lr",
        m.number("optimizer.lr", name.starts_with("torch.") ? 1e-3 : 1e-4));
  m.set("optimizer.betas", json::Array{0.9, 0.999}, "betas", m.pair("optimizer.betas", 0.9, 0.999));
  const char* eps = m.has("optimizer.epsilon") ? "optimizer.epsilon" : "optimizer.eps";
  m.set(eps, 1e-8, "eps", m.number(eps, 1e-8));
  m.import().set("decay", "all");
  m.import().set("weight-decay", decay);
  if (plain_l2 && decay != 0)
    m.refuse(
        "optimizer.weight_decay",
        "Adam adds the decay to the gradient (L2), and --weight-decay takes it from the weights; state 0 or AdamW");
  else
    m.answer("optimizer.weight_decay", fallback, Class::mapped, flag_text("weight-decay", decay) + " --decay all",
             decay != 0 ? "norms and biases decay too" : "");
}

void read_warmup(Mapping& m, double lr) {
  Duration& duration = m.import().duration;
  const double first = m.number("lr_scheduler.init_lr", 0.1 * lr);
  duration.warmup_from = first;
  m.answer("lr_scheduler.init_lr", 0.1 * lr, Class::mapped, flag_text("warmup-from", first),
           "the rate of the first step");
  const char* path = "lr_scheduler.lr_warmup_steps";
  if (!is_given(m, path)) {
    duration.warmup_rule = [](std::int64_t steps) { return std::min<std::int64_t>(1000, steps / 10); };
    m.answer(path, {}, Class::mapped, "--warmup-steps", "a tenth of all steps, 1000 at most");
    return;
  }
  const double share = m.number(path, 0);
  if (share > 0 && share < 1) m.keys().refuse(path, "AutoModel has no warm-up as a share: state the number of steps");
  duration.warmup_steps = m.whole(path, 0);
  m.note(path, Class::mapped, "--warmup-steps " + std::to_string(*duration.warmup_steps));
}

void read_wsd(Mapping& m) {
  m.set("lr_scheduler.wsd_decay_steps", {}, "decay-steps", m.whole("lr_scheduler.wsd_decay_steps", 0));
  const std::string shape = m.text("lr_scheduler.lr_wsd_decay_style", "");
  if (shape == "linear" || shape == "cosine" || shape == "minus_sqrt")
    m.set("lr_scheduler.lr_wsd_decay_style", {}, "decay-shape", shape == "minus_sqrt" ? "1-sqrt" : shape);
  else
    m.refuse("lr_scheduler.lr_wsd_decay_style", "not a shape here; the nearest is --decay-shape 1-sqrt");
}

void read_schedule(Mapping& m) {
  Import& import = m.import();
  const double lr = rate_of(m);
  if (!is_given(m, "lr_scheduler")) {
    import.duration.warmup_steps = 0;
    m.set("lr_scheduler", {}, "schedule", "constant", Class::mapped, "without this section the rate is constant");
    return;
  }
  m.note("lr_scheduler._target_", Class::mapped, "");
  const std::string style = m.text("lr_scheduler.lr_decay_style", "cosine");
  if (style == "cosine" || style == "linear" || style == "constant" || style == "WSD")
    m.set("lr_scheduler.lr_decay_style", "cosine", "schedule", style == "WSD" ? "wsd" : style);
  else
    m.refuse("lr_scheduler.lr_decay_style", style + " is not a schedule here; the nearest is linear");
  read_warmup(m, lr);
  if (style == "WSD") read_wsd(m);
  if (style == "constant") {
    m.note("lr_scheduler.min_lr", Class::does_nothing, {}, "the rate is constant");
    return;
  }
  m.set("lr_scheduler.min_lr", 0.01 * lr, "min-lr", m.number("lr_scheduler.min_lr", 0.01 * lr));
  if (is_given(m, "lr_scheduler.lr_decay_steps"))
    m.set("lr_scheduler.lr_decay_steps", {}, "schedule-steps", m.whole("lr_scheduler.lr_decay_steps", 0));
  const double decay = m.number("optimizer.weight_decay", 0);
  for (const char* path : {"lr_scheduler.start_wd", "lr_scheduler.end_wd"})
    if (m.has(path) && m.number(path, decay) != decay)
      m.refuse(path, "the weight decay is constant here");
    else
      m.note(path, Class::mapped, {}, "the weight decay is constant");
}

void read_steps(Mapping& m) {
  Import& import = m.import();
  Batches& batches = import.batches;
  batches.micro = m.positive("step_scheduler.local_batch_size", 1);
  batches.global = m.positive("step_scheduler.global_batch_size", 1);
  const char* part = "distributed.pipeline.pp_microbatch_size";
  if (is_given(m, "distributed.pp_size") && m.whole("distributed.pp_size", 1) > 1) {
    batches.micro = m.positive(part, 1);
    m.note(part, Class::mapped, "--batch-size " + std::to_string(batches.micro));
    m.note("step_scheduler.local_batch_size", Class::no_effect, {}, "how many micro-batches the stages hold at once");
  } else {
    m.answer("step_scheduler.local_batch_size", 1, Class::mapped, "--batch-size " + std::to_string(batches.micro));
    m.note(part, Class::does_nothing, {}, "pp_size is 1");
  }
  m.answer("step_scheduler.global_batch_size", 1, Class::mapped, "--grad-accumulation",
           "sequences of a step over all data-parallel ranks");
  Duration& duration = import.duration;
  const bool steps = is_given(m, "step_scheduler.max_steps"), epochs = is_given(m, "step_scheduler.num_epochs");
  if (steps) duration.steps = m.positive("step_scheduler.max_steps", 1);
  duration.both_limit = steps && epochs;
  if (epochs || !steps) duration.epochs = m.number("step_scheduler.num_epochs", 10);
  m.note("step_scheduler.max_steps", Class::mapped, "--steps", epochs ? "or num_epochs, whichever is less" : "");
  if (epochs || !steps)
    m.answer("step_scheduler.num_epochs", 10, Class::mapped, "--steps", steps ? "or max_steps, whichever is less" : "");
  if (m.has("step_scheduler.ckpt_every_steps"))
    m.set("step_scheduler.ckpt_every_steps", {}, "save-every", m.whole("step_scheduler.ckpt_every_steps", 0),
          Class::no_effect);
  const char* val = "step_scheduler.val_every_steps";
  if (is_given(m, val) && !import.data.eval.empty()) import.set("eval-every", m.whole(val, 1));
  m.note(val, Class::no_effect, import.data.eval.empty() ? "" : "--eval-every", "when the loss is evaluated");
}

void read_mesh(Mapping& m) {
  Import& import = m.import();
  const auto size = [&](const std::string& name) {
    const std::string path = "distributed." + name;
    return is_given(m, path) ? m.positive(path, 1) : 1;
  };
  const std::int64_t replicate = size("dp_replicate_size"), tp = size("tp_size"), pp = size("pp_size"),
                     cp = size("cp_size"), ep = size("ep_size");
  const std::string strategy = m.text("distributed.strategy", "fsdp2");
  m.set("distributed.strategy", "fsdp2", "zero", strategy == "ddp" ? "1" : "3", Class::mapped,
        strategy == "ddp" ? "weights are copied to each rank" : "");
  m.set("distributed.dp_replicate_size", 1, "dp-replicate", replicate);
  m.set("distributed.tp_size", 1, "tp", tp);
  m.set("distributed.pp_size", 1, "pp", pp);
  m.set("distributed.ep_size", 1, "ep", ep);
  if (cp > 1)
    m.refuse("distributed.cp_size", "sequences are not divided over ranks here");
  else
    m.note("distributed.cp_size", Class::mapped, {}, "off");
  import.set("reduce-dtype", m.text("distributed.mp_policy.reduce_dtype", "float32") == "bfloat16" ? "bf16" : "f32");
  m.note("distributed.mp_policy.reduce_dtype", Class::mapped, "--reduce-dtype");
  if (m.text("distributed.mp_policy.param_dtype", "bfloat16") == "float32") import.set("precision", "fp32");
  m.note("distributed.mp_policy.param_dtype", Class::mapped, "--precision");
  if (!is_given(m, "distributed.dp_size")) {
    m.note("distributed.dp_size", Class::mapped, {}, "the remaining ranks");
    m.assume_ranks(product_of({std::max(replicate, ep), tp, pp}));
  } else {
    const std::int64_t all = size("dp_size");
    if (all % replicate != 0) m.keys().refuse("distributed.dp_size", "is not a multiple of dp_replicate_size");
    m.set("distributed.dp_size", {}, "dp-shard", all / replicate);
    import.ranks = product_of({all, tp, pp, cp});
  }
  const std::string recompute = m.text("distributed.activation_checkpointing", "false");
  m.set("distributed.activation_checkpointing", false, "recompute",
        recompute == "true" || recompute == "full" ? "full"
        : recompute == "selective"                 ? "selective"
                                                   : "none");
}

void read_loss(Mapping& m) {
  const std::string name = m.text("loss_fn._target_", "MaskedCrossEntropy");
  const bool known = std::ranges::any_of(
      std::array{"MaskedCrossEntropy", "FusedLinearCrossEntropy", "TEParallelCrossEntropy", "ChunkedCrossEntropy"},
      [&](const char* one) { return is_python_name(name, one); });
  if (known)
    m.note("loss_fn._target_", Class::mapped, {}, "the sum over the targets of all ranks, divided by their number");
  else
    m.refuse("loss_fn._target_", "losses other than the cross-entropy are not built here");
  if (m.flag("loss_fn.fp32_upcast", true))
    m.note("loss_fn.fp32_upcast", Class::mapped, {}, "the loss is computed in f32");
  else
    m.note("loss_fn.fp32_upcast", Class::differs, {}, "the loss is computed in bf16 there, in f32 here");
  m.set("clip_grad_norm.max_norm", 1.0, "clip", m.number("clip_grad_norm.max_norm", 1));
}

void read_seed(Mapping& m) {
  constexpr const char* kSeed = "another generator: another order of sequences";
  const bool old = !m.has("seed") && m.has("rng.seed");
  m.set(old ? "rng.seed" : "seed", 42, "seed", m.whole(old ? "rng.seed" : "seed", 42), Class::differs, kSeed);
}

}  // namespace

bool is_given(const Mapping& m, std::string_view path) {
  if (!m.has(path)) return false;
  const json::Value* value = find(m.document(), path);
  return !value->is_string() || (value->as_string() != "none" && value->as_string() != "None");
}

bool is_python_name(std::string_view target, std::string_view name) {
  return target == name || (target.ends_with(name) && target[target.size() - name.size() - 1] == '.');
}

int score_automodel(const Document& document) {
  return keys_in(document, {"model._target_", "optimizer._target_", "dataset._target_", "loss_fn._target_",
                            "step_scheduler", "dataloader._target_", "recipe", "dist_env", "distributed.strategy"});
}

void read_automodel(Import& import) {
  Mapping m(import, import.documents.front());
  read_recipe(m);
  read_optimizer(m);
  read_automodel_model(m);
  read_automodel_peft(m);
  read_automodel_data(m);
  read_schedule(m);
  read_steps(m);
  read_mesh(m);
  read_loss(m);
  read_seed(m);
  std::vector<KeyRow> rows(kRows.begin(), kRows.end());
  for (const std::span<const KeyRow> more : {automodel_model_rows(), automodel_data_rows()})
    rows.insert(rows.end(), more.begin(), more.end());
  m.keys().rest(rows);
}

}  // namespace fp8::foreign
