/// Checks that a run and an evaluation share. Each throws Error that names what is wrong.
#pragma once

#include "fp8/ckpt/checkpoint.h"
#include "fp8/data/sampler.h"
#include "fp8/data/tokens.h"
#include "fp8/model/stages.h"
#include "fp8/settings/config.h"

namespace fp8::settings {

/// Sets those of `flags`, a configuration with the values of `given`, that `resolved` has with other values.
void set_resolved(json::Value& flags, const PrecisionConfig& given, const PrecisionConfig& resolved);

/// Sets the sequence length in `flags`, a configuration.
void set_length(json::Value& flags, std::int64_t length);

/// Throws Error for a flag of FP8 on the command line while `precision` is not FP8. After take_recipe_of_codes() and
/// continue_precision().
void check_fp8_flags(const PrecisionConfig& precision);

/// The precision of a run that goes on from `checkpoint`: `precision` if --precision was given, else the precision of
/// the checkpoint with all its flags, which are then not on the command line. Throws Error for one that is. Adds a note
/// about flags of a config file that are ignored, and one about the precision unless it is bf16.
void continue_precision(PrecisionConfig& precision, const ckpt::Checkpoint& checkpoint,
                        std::vector<std::string>& notes);

/// Throws Error if precision, activations and accumulation contradict each other. After take_recipe_of_codes().
void check_precision(const PrecisionConfig& precision);

/// Throws Error for --fuse-projections, which adapters and FP8 codes exclude.
void check_unfused(const PrecisionConfig& precision);

/// A note that names the flags which were given and have no effect with this precision or, if it is fp8, under any of
/// `recipes`; empty if there are none. After take_recipe_of_codes().
std::string note_of_unused(const PrecisionConfig& precision, const std::vector<std::string>& recipes);

/// A note on filters that match routers and no linear; empty if there are none.
std::string note_of_routers(const PrecisionConfig& precision, const std::vector<model::Parameter>& table);
/// A note that --fuse-projections has no effect on this table; empty if it has, or was not given.
std::string note_of_fusion(const PrecisionConfig& precision, const std::vector<model::Parameter>& table);

/// Throws Error if settings of a run contradict each other, but for those of check_precision().
void check_settings(const RunConfig& config);

/// The costs of the units of a model by FLOPs, where those in FP8 count more on a host, which emulates it.
model::UnitCosts costs_of_units(const hf::ModelConfig& model, const std::vector<model::Parameter>& table,
                                std::int64_t length, device::DeviceType device);

/// The layers of each stage: those of --stages, or as even as the costs allow. After fitting_mesh().
std::vector<int> layers_of_stages(const Config& config, const model::UnitCosts& costs);

/// Throws Error for parts of experts, --ep, if no layer of the model at `path` has experts.
void check_expert_parallel(std::int64_t ep, const std::string& path, const hf::ModelConfig& model);
/// The same, and for --aux-loss and --z-loss.
void check_experts(const RunConfig& config, const std::string& path, const hf::ModelConfig& model);

/// A note that --expert-rows has no effect; empty if it has, or was not given.
std::string note_of_expert_rows(const RunConfig& config);

/// Throws Error for --tensor-stats-every where projections are fused. check_settings() does so for the flags; once more
/// after continue_precision().
void check_statistics(const RunConfig& config);

/// Throws Error if a micro-batch has more tokens than a GEMM can have rows.
void check_micro_batch(std::int64_t sequences, std::int64_t length);

/// Throws Error if the vocabulary of the data is larger than the model's.
void check_vocabulary(const data::TokenFile& tokens, const hf::ModelConfig& model);

/// Identifier of the model's tokenizer, if it is known. Throws Error for a tokenizer.json that cannot be read, unless
/// `any`.
std::optional<std::string> tokenizer_of(const ckpt::Checkpoint& model, bool any);

/// Throws Error if the data was made with another tokenizer than the model's, `known`, unless `any`. Returns a note for
/// the user if a tokenizer is not known; otherwise an empty text.
std::string check_tokenizer(const data::TokenFile& tokens, const ckpt::Checkpoint& model,
                            const std::optional<std::string>& known, bool any);

/// Notes for the user on documents that the sampler splits and on padding that it adds; each may be empty.
std::vector<std::string> document_notes(const data::TokenFile& tokens, const data::Sampler& sampler);

/// Sequence length in tokens: `asked`; for 0 that of the packed sequences of `tokens`, or, if they are not packed, the
/// model's context, 1024 at most. Throws Error if the model's attention window is shorter.
std::int64_t resolved_length(std::int64_t asked, const data::TokenInfo& tokens, const hf::ModelConfig& model);

/// A note that sequences of `length` tokens are longer than the model's context; empty if they are not.
std::string note_of_length(std::int64_t length, const hf::ModelConfig& model);

/// The parameters of `checkpoint` with their compute precisions under FP8, which checkpoints record whatever the
/// precision of the run: by the settings, or, if they do not select linears, as recorded in `recorded`, the model that
/// the run began with. A filter of an earlier start of the run therefore has no effect. Throws Error(fp8_missing)
/// if FP8 is requested and no linear is eligible.
std::vector<model::Parameter> table_with_precisions(const hf::ModelConfig& model, const PrecisionConfig& precision,
                                                    const ckpt::Checkpoint& checkpoint,
                                                    const ckpt::Checkpoint& recorded);
/// The same of a model at `path` without weights, which would be stored as `stored`: by the settings alone.
std::vector<model::Parameter> table_with_precisions(const hf::ModelConfig& model, const PrecisionConfig& precision,
                                                    const std::string& path, DType stored);

/// Throws Error(fp8_missing) if FP8 is requested and no GEMM of forward, or of forward and backward, runs in FP8.
void check_some_fp8(const std::vector<model::Parameter>& table, const PrecisionConfig& precision, bool backward);

/// The settings of precision that the checkpoint was computed with, as phase_of(); null if it states none.
const json::Value* recorded_phase(const ckpt::Checkpoint& checkpoint);

/// Whether the delayed scales of a checkpoint have the format and margin of `precision`. True if it states neither.
bool has_scales_of(const ckpt::Checkpoint& checkpoint, const PrecisionConfig& precision);

/// The parameters with the precisions they run in: bf16 unless the precision is FP8.
std::vector<model::Parameter> active_table(std::vector<model::Parameter> table, const PrecisionConfig& precision);

/// The checkpoint's configuration. Throws Error if the checkpoint is quantized and has no adapters, unless it gets new
/// `adapters`.
hf::ModelConfig config_to_train(const ckpt::Checkpoint& checkpoint, bool adapters = false);

/// Throws Error unless the checkpoint's weights are those of the table, in a format that can be trained. Adapters are
/// not looked for if its model has none. Sets Parameter::stored.
void check_trainable(const ckpt::Checkpoint& checkpoint, std::vector<model::Parameter>& table);

/// Throws Error unless both moments of every weight are present, in its shape, as f32 or bf16.
void check_moments(const ckpt::Checkpoint& checkpoint, const std::vector<model::Parameter>& table);

}  // namespace fp8::settings
