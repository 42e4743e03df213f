/// The tokens that end a text of a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/generate/codec.h"
#include "fp8/hf/config.h"

namespace fp8::generate {

/// Ids that end a text: `eos_token_id` of the checkpoint's generation_config.json, else of `config`; the end of
/// sequence of the tokenizer, if `codec` has one; and the token `template_end` of a chat template, unless it is empty.
/// `codec` may be null. Throws Error naming the checkpoint if its generation_config.json is unusable.
std::vector<std::int64_t> end_tokens(const ckpt::Checkpoint& checkpoint, const hf::ModelConfig& config,
                                     const Codec* codec, const std::string& template_end);

}  // namespace fp8::generate
