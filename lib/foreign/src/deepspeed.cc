// Source: integrations/deepspeed.py of transformers 5.8 (values that are "auto" or must agree); DeepSpeed 0.17,
// runtime/config.py and runtime/zero/config.py (keys).
#include "deepspeed.h"

#include <array>

#include "finish.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "mapping.h"

namespace fp8::foreign {
namespace {

constexpr Class kNone = Class::no_effect, kNo = Class::no_counterpart;

constexpr std::array kRows = std::to_array<KeyRow>({
    {"_*", Class::does_nothing, "", "is not a key of DeepSpeed"},
    {"fp8*", Class::does_nothing, "", "DeepSpeed has no section of this name and ignores it"},
    {"zero_optimization.stage", Class::mapped, "", ""},
    {"zero_optimization.zero_hpz_partition_size", Class::differs, "", "weights are not kept once more within a node"},
    {"zero_optimization.zero_quantized_weights", kNo, "",
     "weights are not gathered as 8-bit integers; FP8 all-gather comes nearest"},
    {"zero_optimization.zero_quantized_nontrainable_weights", kNo, "", "weights are not gathered as 8-bit integers"},
    {"zero_optimization.zero_quantized_gradients", kNo, "", "gradients are not reduced as 4-bit integers"},
    {"zero_optimization.mics_shard_size", kNo, "", "--dp-shard and --dp-replicate come nearest"},
    {"zero_optimization.*", kNone, "", "memory and speed of communication"},
    {"zero_allow_untested_optimizer", kNone, "", ""},
    {"zero_force_ds_cpu_optimizer", kNone, "", "without offload"},
    {"communication_data_type", kNone, "", "gradients are reduced in f32"},
    {"gradient_predivide_factor", kNone, "", ""},
    {"prescale_gradients", kNone, "", ""},
    {"sparse_gradients", kNone, "", ""},
    {"sparse_attention", kNo, "", "attention is causal over all positions"},
    {"fp16.*", kNone, "", "the scale of fp16 losses"},
    {"bf16.*", kNone, "", ""},
    {"amp.*", kNo, "", "Apex is not used; --precision bf16 comes nearest"},
    {"activation_checkpointing.*", Class::does_nothing, "", "the Trainer does not call it"},
    {"curriculum_learning.*", kNo, "", "sequences have one length in all steps"},
    {"curriculum_learning", kNo, "", "sequences have one length in all steps"},
    {"data_efficiency", kNo, "", "no tokens are dropped and no samples reordered"},
    {"progressive_layer_drop", kNo, "", "no layers are dropped"},
    {"compression_training", kNo, "", "weights are not compressed in training"},
    {"eigenvalue", kNo, "", ""},
    {"pipeline", Class::does_nothing, "", "the Trainer has no pipeline stages"},
    {"tensor_parallel.tp_grain_size", kNone, "", ""},
    {"checkpoint.*", kNone, "", ""},
    {"checkpoint", kNone, "", ""},
    {"load_universal_checkpoint", kNone, "", ""},
    {"use_data_before_expert_parallel*", kNone, "", ""},
    {"elasticity", kNo, "", "the batch does not change with the number of ranks"},
    {"autotuning", kNone, "", ""},
    {"aio", kNone, "", ""},
    {"comms_logger", kNone, "", ""},
    {"comms_config", kNone, "", ""},
    {"monitor_config", kNone, "", ""},
    {"tensorboard", kNone, "", ""},
    {"csv_monitor", kNone, "", ""},
    {"wandb", kNone, "", ""},
    {"flops_profiler", kNone, "", ""},
    {"wall_clock_breakdown", kNone, "", ""},
    {"memory_breakdown", kNone, "", ""},
    {"dump_state", kNone, "", ""},
    {"steps_per_print", kNone, "", ""},
    {"disable_allgather", kNone, "", ""},
    {"seq_parallel_communication_data_type", kNone, "", ""},
    {"compile", kNone, "", ""},
    {"timers", kNone, "", ""},
    {"nebula", kNone, "", ""},
    {"zero_optimization", kNone, "", ""},
    {"bf16", kNone, "", ""},
    {"fp16", kNone, "", ""},
});

class Reader {
 public:
  Reader(Import& import, const Document& document) : import_(import), map_(import, document) {}

  void read() {
    shards();
    batches();
    optimizer();
    precision();
    map_.keys().rest(kRows);
  }

 private:
  bool is_auto(const char* path) const {
    const json::Value* v = map_.keys().value(path);
    return v != nullptr && v->is_string() && v->as_string() == "auto";
  }

  void shards() {
    constexpr const char* kStage = "zero_optimization.stage";
    const std::int64_t stage = map_.whole(kStage, 0);
    if (stage < 0 || stage > 3) map_.keys().refuse(kStage, "needs 0 to 3");
    if (map_.has(kStage)) {
      const std::string zero = stage == 0 ? "1" : std::to_string(stage);
      map_.set(kStage, 0, "zero", zero, Class::mapped,
               stage == 0 ? "stage 0 keeps all on every rank; the results are the same" : "");
    }
    for (const char* what : {"zero_optimization.offload_optimizer", "zero_optimization.offload_param"}) {
      const std::string device = map_.text(std::string(what) + ".device", "none");
      map_.note(what, device == "none" ? kNone : kNo, "",
                device == "none" ? ""
                                 : "nothing is offloaded to " + device +
                                       " memory; --zero 3, --recompute full and more ranks need less");
    }
    map_.note("zero_optimization.cpu_offload", map_.flag("zero_optimization.cpu_offload", false) ? kNo : kNone, "",
              "nothing is offloaded");
    const std::int64_t tp = is_auto("tensor_parallel.autotp_size") ? 1 : map_.whole("tensor_parallel.autotp_size", 1);
    if (map_.has("tensor_parallel.autotp_size")) map_.set("tensor_parallel.autotp_size", 1, "tp", tp);
    const std::int64_t sp = map_.whole("sequence_parallel_size", 1);
    map_.note("sequence_parallel_size", sp == 1 ? kNone : kNo, "", sp == 1 ? "" : "sequences are not split over ranks");
  }

  // A value that the Trainer replaces if it is "auto", and compares with its own otherwise.
  void agree(const char* path, double own, const char* here) {
    if (!map_.has(path)) return;
    if (is_auto(path)) return map_.note(path, Class::mapped, here, "auto: that of the Trainer");
    const double value = map_.number(path, own);
    if (value == own) return map_.note(path, Class::mapped, here);
    map_.refuse(path, "contradicts the Trainer, which has " + format_double(own) + " and refuses to start");
  }

  void batches() {
    const Batches& b = import_.batches;
    const std::int64_t ranks = ranks_of(import_);
    agree("train_micro_batch_size_per_gpu", static_cast<double>(b.micro), "--batch-size");
    agree("gradient_accumulation_steps", static_cast<double>(b.accumulation), "--grad-accumulation");
    constexpr const char* kWhole = "train_batch_size";
    if (map_.has(kWhole) && !is_auto(kWhole) && !import_.options.ranks && !import_.ranks) {
      const std::int64_t each = b.micro * b.accumulation, whole = map_.whole(kWhole, each);
      if (whole > 0 && whole % each == 0) {
        import_.ranks = whole / each;
        return map_.note(kWhole, Class::mapped, "mpirun -n " + std::to_string(*import_.ranks),
                         "the number of ranks follows from it");
      }
    }
    agree(kWhole, static_cast<double>(b.micro) * static_cast<double>(b.accumulation) * static_cast<double>(ranks),
          "--batch-size --grad-accumulation");
  }

  double own(const char* flag) const {
    const json::Value* v = import_.flags.find(flag);
    return v != nullptr && v->is_number() ? v->as_double() : 0;
  }

  void optimizer() {
    agree("gradient_clipping", own("clip"), "--clip");
    if (map_.has("optimizer")) {
      const std::string type = map_.text("optimizer.type", "AdamW");
      if (type == "AdamW" || type == "Adam")
        map_.note("optimizer.type", Class::mapped, "AdamW",
                  type == "Adam" ? "DeepSpeed's Adam decays as AdamW does" : "");
      else
        map_.refuse("optimizer.type", "AdamW comes nearest");
      agree("optimizer.params.lr", own("lr"), "--lr");
      agree("optimizer.params.eps", own("eps"), "--eps");
      agree("optimizer.params.weight_decay", own("weight-decay"), "--weight-decay");
      map_.note(
          "optimizer.params.betas", Class::mapped, "--betas",
          is_auto("optimizer.params.betas") ? "auto: that of the Trainer" : "the Trainer refuses others than its own");
      map_.note("optimizer.params.torch_adam", kNone, "");
      map_.note("optimizer.params.adam_w_mode", map_.flag("optimizer.params.adam_w_mode", true) ? kNone : kNo, "",
                "decay is decoupled");
    }
    if (!map_.has("scheduler")) return;
    const std::string type = map_.text("scheduler.type", "WarmupLR");
    const bool decays = type == "WarmupDecayLR", cosine = type == "WarmupCosineLR";
    if (type != "WarmupLR" && !decays && !cosine)
      return map_.refuse("scheduler", "the schedules of --schedule are linear, cosine, constant and wsd");
    map_.note("scheduler", Class::no_counterpart, "",
              "DeepSpeed's " + type +
                  " grows with the logarithm of the step unless warmup_type is linear; remove it, and "
                  "the Trainer's lr_scheduler_type is used");
  }

  void precision() {
    const json::Value* bf16 = map_.keys().value("bf16.enabled");
    if (bf16 != nullptr && !is_auto("bf16.enabled") && map_.flag("bf16.enabled", false))
      map_.note("bf16.enabled", Class::mapped, "--precision bf16");
    const bool fp16 = !is_auto("fp16.enabled") && map_.flag("fp16.enabled", false);
    if (fp16) map_.refuse("fp16.enabled", "fp16 is not trained; --precision bf16 comes nearest");
  }

  Import& import_;
  Mapping map_;
};

}  // namespace

bool is_deepspeed(const Document& document) {
  for (const char* key : {"zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer"})
    if (find(document, key) != nullptr) return true;
  return false;
}

void answer_deepspeed(Import& import, const Document& document) { Reader(import, document).read(); }

}  // namespace fp8::foreign
