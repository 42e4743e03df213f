// The chat template of a run's data, which its checkpoints keep. Private to the crate.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/data/tokens.h"
#include "fp8/json/value.h"

namespace fp8::train {

// What a run makes of the templates of its data and its model.
struct RunTemplate {
  json::Value id;                            // name or digest of that of the data, for the settings; null without one
  std::string end;                           // token that ends an answer of it; empty: none, or that of the tokenizer
  std::map<std::string, std::string> texts;  // files beside the tokenizer for checkpoints, with that of the data
  std::string note;                          // for the user; may be empty
};

// The template of `tokens` takes the place of that of `start`, unless it is the same. `eval_tokens` may be null.
// The folder `adapter` of --lora, which may be empty, counts as part of `start`, unless the run is `resuming`.
// `tokenizer` is the identifier of the model's tokenizer, if it is known: the checkpoints of a model with another
// tokenizer than that of the data keep their files. Throws Error if two templates differ, unless `any`;
// the data of a run that is `resuming` is compared with that of the settings instead of that of `start`.
RunTemplate resolve_template(const data::TokenFile& tokens, const data::TokenFile* eval_tokens,
                             const ckpt::Checkpoint& start, const std::string& adapter,
                             const std::optional<std::string>& tokenizer, bool resuming, bool any);

// A note if the data of an evaluation was made with another template than that of the checkpoint; else "".
std::string note_of_template(const data::TokenFile& tokens, const ckpt::Checkpoint& checkpoint);

}  // namespace fp8::train
