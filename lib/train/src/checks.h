// Checks that a run and an evaluation share. Private to the crate. Each throws Error that names what is wrong.
#pragma once

#include "fp8/data/tokens.h"
#include "state.h"

namespace fp8::train {

// Precision and activations contradict each other.
void check_precision(const PrecisionConfig& precision);

// More tokens in a micro-batch than matmuls can number.
void check_micro_batch(std::int64_t sequences, std::int64_t length);

// Data whose vocabulary is larger than the model's.
void check_vocabulary(const data::TokenFile& tokens, const hf::ModelConfig& model);

// What the model's tokenizer is known by; nothing where that is not known. With `any`, a tokenizer.json that cannot be
// read is not known either.
std::optional<std::string> tokenizer_of(const ckpt::Checkpoint& model, bool any);

// Data that was made with another tokenizer than the model's, `known`, unless `any`. Returns what users should know of
// one that is not known; empty where there is nothing.
std::string check_tokenizer(const data::TokenFile& tokens, const ckpt::Checkpoint& model,
                            const std::optional<std::string>& known, bool any);

// Sequence length in tokens: as asked, or by default what the model was made for, 1024 at most. A model with a shorter
// window refuses.
std::int64_t resolved_length(std::int64_t asked, const hf::ModelConfig& model);

// The parameters of `checkpoint` with the precisions they have under FP8: as the flags say, else as `recorded`, the
// model that a run began with, says; so a filter of an earlier start of the run holds no longer. They are what a
// checkpoint keeps, whatever the precision of the phase. FP8 on a model with no eligible linear is an error with a
// status of its own.
std::vector<model::Parameter> table_with_precisions(const hf::ModelConfig& model, const PrecisionConfig& precision,
                                                    const ckpt::Checkpoint& checkpoint,
                                                    const ckpt::Checkpoint& recorded);

// The same as they run: without FP8 every precision is bf16.
std::vector<model::Parameter> active_table(std::vector<model::Parameter> table, const PrecisionConfig& precision);

}  // namespace fp8::train
