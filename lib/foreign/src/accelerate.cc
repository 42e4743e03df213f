// Source: commands/launch.py and utils/dataclasses.py of Accelerate 1.12 (keys).
#include "accelerate.h"

#include <algorithm>
#include <array>

#include "deepspeed.h"
#include "mapping.h"
#include "named_files.h"

namespace fp8::foreign {
namespace {

constexpr Class kNone = Class::no_effect, kNo = Class::no_counterpart;

constexpr std::array kRows = std::to_array<KeyRow>({
    {"fsdp_config.*", kNone, "", "memory and speed"},
    {"compute_environment", kNone, "", ""},
    {"debug", kNone, "", ""},
    {"distributed_type", kNone, "", ""},
    {"downcast_bf16", kNone, "", "of TPUs"},
    {"enable_cpu_affinity", kNone, "", ""},
    {"gpu_ids", kNone, "", ""},
    {"machine_rank", kNone, "", ""},
    {"main_process_ip", kNone, "", ""},
    {"main_process_port", kNone, "", ""},
    {"main_training_function", kNone, "", ""},
    {"num_cpu_threads_per_process", kNone, "", ""},
    {"rdzv_backend", kNone, "", ""},
    {"same_network", kNone, "", ""},
    {"tpu_*", kNone, "", ""},
    {"deepspeed_config.*", kNone, "", ""},
    {"dynamo_config", kNone, "", "compiled code differs in rounding"},
    {"dynamo_backend", kNone, "", "compiled code differs in rounding"},
    {"mpirun_config", kNone, "", ""},
    {"ipex_config", kNone, "", ""},
    {"fsdp_config", kNone, "", ""},
    {"deepspeed_config", kNone, "", ""},
    {"megatron_lm_config.*", Class::does_nothing, "", "the Trainer does not use Megatron-LM"},
    {"parallelism_config.*", kNone, "", ""},
    {"fp8_config.*", kNone, "", ""},
});

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

void answer_fsdp(Mapping& map) {
  const std::string strategy = lower(map.text("fsdp_config.fsdp_sharding_strategy", ""));
  if (!strategy.empty()) {
    constexpr const char* kKey = "fsdp_config.fsdp_sharding_strategy";
    const bool hybrid = strategy.starts_with("hybrid_shard");
    std::string zero = "3";
    if (strategy == "shard_grad_op" || strategy == "2" || strategy == "hybrid_shard_zero2") zero = "2";
    if (strategy == "no_shard" || strategy == "3") zero = "1";
    map.set(kKey, "", "zero", zero);
    const std::int64_t machines = map.positive("num_machines", 1);
    if (hybrid && machines > 1) map.set("num_machines", 1, "dp-replicate", machines);
  }
  if (map.has("fsdp_config.fsdp_reshard_after_forward")) {
    const std::string reshard = lower(map.text("fsdp_config.fsdp_reshard_after_forward", "true"));
    map.set("fsdp_config.fsdp_reshard_after_forward", true, "zero",
            reshard == "false" || reshard == "shard_grad_op" ? "2" : "3");
  }
  if (map.flag("fsdp_config.fsdp_offload_params", false))
    map.refuse("fsdp_config.fsdp_offload_params", "nothing is offloaded; --recompute full and more ranks need less");
  if (map.has("fsdp_config.fsdp_activation_checkpointing"))
    map.set("fsdp_config.fsdp_activation_checkpointing", false, "recompute",
            map.flag("fsdp_config.fsdp_activation_checkpointing", false) ? "full" : "none");
}

void answer_deepspeed_config(Import& import, Mapping& map) {
  if (!map.has("deepspeed_config")) return;
  if (map.has("deepspeed_config.deepspeed_config_file")) {
    const std::string name = map.text("deepspeed_config.deepspeed_config_file", "");
    const Document* document = named_document(import, name, "deepspeed_config.deepspeed_config_file");
    map.note("deepspeed_config.deepspeed_config_file", Class::mapped, "");
    if (document != nullptr) answer_deepspeed(import, *document);
    return;
  }
  if (map.has("deepspeed_config.zero_stage")) {
    const std::int64_t stage = std::max<std::int64_t>(map.whole("deepspeed_config.zero_stage", 2), 1);
    map.set("deepspeed_config.zero_stage", 2, "zero", std::to_string(std::min<std::int64_t>(stage, 3)));
  }
  for (const char* key : {"deepspeed_config.offload_optimizer_device", "deepspeed_config.offload_param_device"})
    if (map.has(key) && map.text(key, "none") != "none") map.refuse(key, "nothing is offloaded");
}

void answer_fp8(Mapping& map, bool trainer_fp8) {
  if (!map.has("fp8_config")) return;
  if (!trainer_fp8)
    return map.note("fp8_config", Class::does_nothing, "", "the trainer's own precision replaces that of this file");
  map.note("fp8_config.backend", Class::mapped, "--recipe");
  map.note("fp8_config.amax_history_len", Class::mapped, "--amax-history");
  map.note("fp8_config.amax_history_length", Class::mapped, "--amax-history");
  map.note("fp8_config.amax_compute_algo", Class::mapped, "--amax-algo");
  map.note("fp8_config.amax_compute_algorithm", Class::mapped, "--amax-algo");
  map.note("fp8_config.fp8_format", Class::mapped, "--fp8-format");
  map.note("fp8_config.margin", Class::mapped, "--margin");
  if (map.whole("fp8_config.interval", 1) != 1)
    map.note("fp8_config.interval", Class::does_nothing, "", "Transformer Engine ignores it");
}

}  // namespace

bool is_accelerate(const Document& document) {
  int keys = 0;
  for (const char* key : {"compute_environment", "distributed_type", "num_processes", "num_machines", "machine_rank",
                          "main_training_function", "rdzv_backend", "same_network", "fsdp_config", "fp8_config"})
    if (find(document, key) != nullptr) ++keys;
  return keys >= 3;
}

std::optional<AccelerateFp8> accelerate_fp8(Import& import, const Document& document) {
  const Mapping map(import, document);
  if (lower(map.text("mixed_precision", "no")) != "fp8" && !map.has("fp8_config")) return std::nullopt;
  AccelerateFp8 fp8;
  fp8.backend = lower(map.text("fp8_config.backend", ""));
  if (fp8.backend == "ao") fp8.backend = "torchao";
  for (const char* key : {"fp8_config.amax_history_len", "fp8_config.amax_history_length"})
    if (map.has(key)) fp8.history = map.whole(key, 1024);
  for (const char* key : {"fp8_config.amax_compute_algo", "fp8_config.amax_compute_algorithm"})
    if (map.has(key)) fp8.algorithm = lower(map.text(key, "max"));
  if (map.has("fp8_config.fp8_format")) fp8.format = lower(map.text("fp8_config.fp8_format", "hybrid"));
  if (map.has("fp8_config.margin")) fp8.margin = map.whole("fp8_config.margin", 0);
  return fp8;
}

void answer_accelerate(Import& import, const Document& document, bool trainer_fp8) {
  Mapping map(import, document);
  if (map.has("num_processes")) {
    import.ranks = map.positive("num_processes", 1);
    map.note("num_processes", Class::mapped, "mpirun -n " + std::to_string(*import.ranks),
             import.options.ranks ? "--ranks replaces it" : "");
  }
  answer_fsdp(map);
  answer_deepspeed_config(import, map);
  answer_fp8(map, trainer_fp8);
  map.note("num_machines", kNone, "");
  const std::string precision = lower(map.text("mixed_precision", "no"));
  if (precision == "fp8")
    map.note("mixed_precision", trainer_fp8 ? Class::mapped : Class::does_nothing, trainer_fp8 ? "--precision fp8" : "",
             trainer_fp8 ? "" : "the trainer's bf16 replaces it, so that nothing runs in FP8");
  map.note("mixed_precision", kNone, "", "the trainer's own precision replaces it");
  const bool cpu = map.flag("use_cpu", false);
  map.note("use_cpu", cpu ? Class::mapped : kNone, cpu ? "--device host" : "");
  for (const char* size : {"parallelism_config_tp_size", "parallelism_config_cp_size", "parallelism_config_sp_size"}) {
    const std::string key = std::string("parallelism_config.") + size;
    if (map.whole(key, 1) > 1) map.note(key, kNo, "", "--tp divides linears; sequences are not split over ranks");
  }
  map.keys().rest(kRows);
}

}  // namespace fp8::foreign
