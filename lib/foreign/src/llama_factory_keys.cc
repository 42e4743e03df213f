// Source: LLaMA-Factory ff6d4d12, hparams; transformers 4.40 to 5.8, training_args.py.
#include "llama_factory_keys.h"

#include <array>
#include <string>

#include "fp8/base/text.h"
#include "trainer_rows.h"

namespace fp8::foreign {
namespace {

// A feature, the key that turns it on, and the keys that have an effect only with it.
struct Feature {
  const char* key;
  const char* why;
  const char* dependents = nullptr;  // a glob
};

constexpr std::array kFeatures = std::to_array<Feature>({
    {"use_galore", "AdamW comes nearest", "galore_*"},
    {"use_apollo", "AdamW comes nearest", "apollo_*"},
    {"use_badam", "AdamW comes nearest", "badam_*"},
    {"use_adam_mini", "AdamW comes nearest"},
    {"use_muon", "LLaMA-Factory's Muon has another scale and other matrices; AdamW comes nearest"},
    {"adafactor", "AdamW comes nearest"},
    {"use_dora", "adapters have no magnitudes; without use_dora comes nearest"},
    {"pissa_init", "adapters begin with B = 0; without pissa_init comes nearest", "pissa_*"},
    {"loraplus_lr_ratio", "A and B have one rate", "loraplus_*"},
    {"additional_target", "modules beside adapters are frozen"},
    {"use_llama_pro", "no layers are added", "freeze_trainable_*"},
    {"quantization_bit", "frozen weights are bf16 or FP8, not 8 or 4 bits; --lora-rank beside FP8 codes comes nearest",
     "quantization_*"},
    {"neftune_noise_alpha", "no noise is added to embeddings"},
    {"label_smoothing_factor", "targets are not smoothed"},
    {"use_dft_loss", "the loss is cross-entropy"},
    {"use_asft_loss", "the loss is cross-entropy", "asft_*"},
    {"use_eaft_loss", "the loss is cross-entropy", "eaft_*"},
    {"rope_scaling", "the rotary positions are those of config.json; change rope_parameters there"},
    {"shift_attn", "attention is causal over all positions"},
    {"mixture_of_depths", "no tokens skip layers"},
    {"use_kt", "experts are computed on the devices of the ranks", "kt_*"},
    {"use_hyper_parallel", "--tp, --pp and --ep divide a model", "hyper_parallel_*"},
    {"resize_vocab", kVocabulary},
    {"add_tokens", kVocabulary},
    {"add_special_tokens", kVocabulary},
    {"new_special_tokens_config", kVocabulary, "init_special_tokens"},
    {"default_system", "the system prompt is that of the template; fp8-template(5) describes files for others"},
    {"tool_format", "calls of tools are not rendered"},
    {"preserve_thinking", "thoughts are text"},
    {"early_stopping_steps", "the run ends after its steps; --keep-best keeps the best checkpoint"},
    {"load_best_model_at_end", "the last checkpoint is exported; --keep-best and RUN@best name the best"},
    {"optim_target_modules", "all trainable parameters have one optimizer"},
    {"optim_args", "AdamW has --betas and --eps"},
    {"freeze_language_model", "images are not read"},
    {"predict_with_generate", "fp8-generate generates"},
    {"do_predict", "fp8-generate generates"},
    {"use_unsloth", "the kernels are those of the suite"},
    {"group_by_length", "samples are not ordered by length"},
    {"sortish_sampler", "samples are not ordered by length"},
    {"split_special_tokens", "special tokens in a text are special tokens"},
    {"tokenized_path", "tokenized data of LLaMA-Factory is not read; name its dataset"},
    {"interleave_probs", "data sets are put one after the other"},
    {"ref_model", "preferences are not learned", "ref_model_*"},
    {"reward_model", "rewards are not learned", "reward_model_*"},
    {"parallelism_config", "--tp, --pp and --dp-shard divide a model"},
    {"extra_config", "arguments of Megatron are not read"},
    {"megatron_pretrained_checkpoint", "checkpoints of Megatron are not read; --model names a Hugging Face folder"},
});

// A value that turns a feature on.
bool is_on(const json::Value* value) {
  if (value == nullptr) return false;
  if (value->is_bool()) return value->as_bool();
  if (value->is_number()) return value->as_double() != 0;
  if (!value->is_string()) return true;
  for (const char* off : {"", "false", "False", "no", "none", "None", "0"})
    if (value->as_string() == off) return false;
  return true;
}

constexpr Class kNone = Class::no_effect, kNo = Class::no_counterpart, kNot = Class::does_nothing;
constexpr const char* kPictures = "of pictures and sounds, which are not read";
constexpr const char* kPreference = "of preferences and rewards, which are not learned";
constexpr const char* kHub = "nothing is sent to a hub";

constexpr std::array kRows = std::to_array<KeyRow>({
    // Results can differ in rounding alone.
    {"flash_attn", Class::differs, "", "the kernel of attention differs in rounding alone"},
    {"enable_liger_kernel", Class::differs, "", "fused kernels differ in rounding alone"},
    {"use_liger_kernel", Class::differs, "", "fused kernels differ in rounding alone"},
    {"liger_kernel_config*", Class::differs, "", "fused kernels differ in rounding alone"},
    {"use_v1_kernels", Class::differs, "", "fused kernels differ in rounding alone"},
    {"tf32", Class::differs, "", "products outside of linears differ in rounding alone"},
    {"torch_compile*", Class::differs, "", "compiled code differs in rounding alone"},
    {"upcast_layernorm", Class::differs, "", "norms are computed in f32 here in every case"},
    {"upcast_lmhead_output", Class::differs, "", "the loss is computed in f32 here in every case"},
    {"fp16_opt_level", kNone, "", ""},
    {"half_precision_backend", kNone, "", ""},
    {"full_determinism", kNone, "", "runs are deterministic"},
    {"enable_thinking", kNone, "", "of templates with thoughts alone"},
    {"ignore_pad_token_for_loss", Class::mapped, "", "padding is no target"},
    // How the model is loaded and how memory is used.
    {"model_revision", kNone, "", "nothing is downloaded"},
    {"cache_dir", kNone, "", "nothing is downloaded"},
    {"*_hub_token", kNone, "", kHub},
    {"use_fast_tokenizer", kNone, "", "tokenizer.json is read"},
    {"use_reentrant_gc", kNone, "", ""},
    {"use_unsloth_gc", kNone, "", ""},
    {"gradient_checkpointing*", kNone, "", "--recompute is set by disable_gradient_checkpointing"},
    {"adapter_folder", kNone, "", ""},
    {"offload_folder", kNone, "", ""},
    {"use_cache", kNone, "", ""},
    {"use_cpu", kNone, "", ""},
    {"no_cuda", kNone, "", ""},
    {"use_mps_device", kNone, "", ""},
    {"low_gpu_mem_usage", kNone, "", ""},
    {"double_quantization", kNot, "", "quantization_bit is not set"},
    {"media_dir", kNone, "", kPictures},
    {"image_*", kNone, "", kPictures},
    {"video_*", kNone, "", kPictures},
    {"audio_*", kNone, "", kPictures},
    {"crop_to_patches", kNone, "", kPictures},
    {"use_audio_in_video", kNone, "", kPictures},
    {"freeze_vision_tower", kNone, "", kPictures},
    {"freeze_multi_modal_projector", kNone, "", kPictures},
    {"freeze_*", kNone, "", "of finetuning_type freeze"},
    {"oft_*", kNone, "", "of finetuning_type oft"},
    {"module_dropout", kNone, "", "of finetuning_type oft"},
    {"lora_*", kNot, "", "finetuning_type is not lora"},
    {"use_rslora", kNot, "", "finetuning_type is not lora"},
    {"create_new_adapter", kNone, "", ""},
    {"adapter_name_or_path", kNo, "", "adapters are used with finetuning_type lora"},
    {"pref_*", kNone, "", kPreference},
    {"dpo_*", kNone, "", kPreference},
    {"kto_*", kNone, "", kPreference},
    {"ppo_*", kNone, "", kPreference},
    {"simpo_gamma", kNone, "", kPreference},
    {"ld_alpha", kNone, "", kPreference},
    {"moe_aux_loss_coef", Class::mapped, "--aux-loss 0", ""},
    // Data.
    {"overwrite_cache", kNone, "", ""},
    {"preprocessing_*", kNone, "", ""},
    {"buffer_size", kNone, "", ""},
    {"data_shared_file_system", kNone, "", ""},
    {"streaming", kNone, "", ""},
    {"eval_num_beams", kNone, "", ""},
    {"eval_on_each_dataset", kNone, "", "one loss over all evaluation data"},
    {"label_names", kNone, "", ""},
    {"length_column_name", kNone, "", ""},
    {"dispatch_batches", kNone, "", ""},
    {"split_batches", kNone, "", ""},
    {"accelerator_config.split_batches", kNo, "", "--batch-size is that of a rank"},
    {"ignore_data_skip", kNone, "", ""},
    // Logging, evaluation, saving.
    {"overwrite_output_dir", kNone, "", ""},
    {"logging_*", kNone, "", ""},
    {"log_*", kNone, "", ""},
    {"disable_tqdm", kNone, "", ""},
    {"report_to", kNone, "", "fp8-log reads the records of a run"},
    {"run_name", kNone, "", ""},
    {"project", kNone, "", ""},
    {"plot_loss", kNone, "", "fp8-log --plot draws it"},
    {"compute_accuracy", kNone, "", ""},
    {"include_*", kNone, "", ""},
    {"print_param_status", kNone, "", ""},
    {"do_eval", kNone, "", ""},
    {"per_device_eval_batch_size", kNone, "", ""},
    {"per_gpu_*", kNo, "", "per_device_train_batch_size replaces it"},
    {"prediction_loss_only", kNone, "", ""},
    {"bf16_full_eval", kNone, "", "evaluations have the precision of the run"},
    {"fp16_full_eval", kNone, "", "evaluations have the precision of the run"},
    {"batch_eval_metrics", kNone, "", ""},
    {"enable_jit_checkpoint", kNone, "", ""},
    {"restore_callback_states_from_checkpoint", kNone, "", ""},
    {"push_to_hub*", kNone, "", kHub},
    {"debug", kNone, "", ""},
    {"skip_memory_metrics", kNone, "", ""},
    {"enable_torch_profiler", kNone, "", "fp8-step --profile measures"},
    {"profile*", kNone, "", "fp8-step --profile measures"},
    {"past_index", kNone, "", ""},
    {"mp_parameters", kNone, "", ""},
    {"generation_*", kNone, "", "of generation"},
    {"do_sample", kNone, "", "of generation"},
    {"temperature", kNone, "", "of generation"},
    {"top_p", kNone, "", "of generation"},
    {"top_k", kNone, "", "of generation"},
    {"num_beams", kNone, "", "of generation"},
    {"max_length", kNone, "", "of generation"},
    {"max_new_tokens", kNone, "", "of generation"},
    {"repetition_penalty", kNone, "", "of generation"},
    {"length_penalty", kNone, "", "of generation"},
    {"skip_special_tokens", kNone, "", "of generation"},
    {"infer_*", kNone, "", "of generation"},
    {"use_kv_cache", kNone, "", "of generation"},
    {"vllm_*", kNone, "", "of generation"},
    {"sglang_*", kNone, "", "of generation"},
    {"export_*", kNone, "", "fp8-export exports"},
    {"task*", kNone, "", "of evaluations alone"},
    {"n_shot", kNone, "", "of evaluations alone"},
    {"lang", kNone, "", "of evaluations alone"},
    {"batch_size", kNone, "", "of evaluations alone"},
    {"save_dir", kNone, "", "of evaluations alone"},
    {"download_mode", kNone, "", "of evaluations alone"},
    // Processes.
    {"master_addr", kNone, "", ""},
    {"master_port", kNone, "", ""},
    {"placement_strategy", kNone, "", "mpirun starts the ranks"},
    {"fsdp_config.cpu_offload", kNo, "", "nothing is offloaded"},
    {"fsdp*", kNone, "", ""},
    {"tpu_*", kNone, "", ""},
    {"use_ipex", kNone, "", ""},
    {"jit_mode_eval", kNone, "", ""},
    {"torchdynamo", kNone, "", ""},
    // Megatron.
    {"use_mca", kNone, "", "is set by an environment variable"},
    {"use_megatron_bridge", kNone, "", "is set by an environment variable"},
    {"context_parallel_size", kNone, "", ""},
    {"hyper_parallel_cp_size", kNone, "", ""},
    {"sequence_parallel", kNone, "", ""},
    {"virtual_pipeline_model_parallel_size", kNone, "", "the order of stages does not change results"},
    {"account_for_*", kNone, "", ""},
    {"recompute_*", kNone, "", ""},
    {"*_fusion", kNone, "", ""},
    {"moe_*", kNone, "", "dispatch and kernels of experts"},
    {"calculate_per_token_loss", kNone, "", ""},
    {"use_distributed_optimizer", kNone, "", "--zero 1 to 3 shard the optimizer"},
    {"overlap_*", kNone, "", ""},
    {"use_packed_sequences", kNone, "", ""},
    {"mixed_precision", kNone, "", "bf16 and fp8 say the precision"},
});

}  // namespace

void answer_llama_factory_features(Mapping& map) {
  for (const Feature& feature : kFeatures) {
    const bool on = is_on(map.keys().value(feature.key));
    map.note(feature.key, on ? kNo : kNone, "", on ? feature.why : "");
    if (feature.dependents == nullptr) continue;
    for (const auto& [key, value] : map.document().root.as_object())
      if (glob_match(feature.dependents, key))
        map.note(key, on ? kNo : kNot, "", on ? feature.why : std::string(feature.key) + " is not set");
  }
}

std::span<const KeyRow> llama_factory_keys() { return kRows; }

}  // namespace fp8::foreign
