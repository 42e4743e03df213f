// Text that a model generates while it is trained: always the most probable token, by forward passes of the sharded
// model, in the precision of the run. There is no key/value cache, so that a token costs a pass over the whole text;
// in return nothing is held between samples, and the passes are those of training. Private to the crate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/comm/comm.h"
#include "fp8/generate/prompt.h"
#include "fp8/settings/config.h"
#include "fp8/shard/sharded_model.h"

namespace fp8::train {

// The samples of a run.
struct SampleSetup {
  generate::Codec codec;
  generate::Ids prompt;
  std::int64_t tokens = 0;               // most new ones, so that the text fits the model's context
  std::vector<std::int64_t> end_tokens;  // ids that end the text

  // The batch of the longest pass.
  shard::BatchShape shape() const;
};

// The samples that the settings request; nothing if they request none. Text becomes tokens by the tokenizer of
// `checkpoint`, else by bytes if that is `tokenizer_id`, the tokenizer that the run records. Throws Error if there is
// neither, and if the prompt has no tokens or does not fit the model. `texts`, the files beside the tokenizer, name its
// special tokens. A text also ends at the token `template_end`,
// unless it is empty.
std::optional<SampleSetup> resolve_sample(const settings::RunConfig& config, const ckpt::Checkpoint& checkpoint,
                                          const hf::ModelConfig& model, const std::optional<std::string>& tokenizer_id,
                                          const std::map<std::string, std::string>& texts,
                                          const std::string& template_end);

// A continuation of the prompt.
struct SampledText {
  generate::Ids ids;   // new tokens, with the one that ended the text
  std::string text{};  // their text, UTF-8, without special tokens
  bool finite = true;  // false: ended because the logits were not finite
};

// Generates. The model, histories of amaxes included, is unchanged. Equal weights give the same text on the same
// number of ranks and threads. Delayed scales must be known. Collective.
SampledText sample_text(shard::ShardedModel& model, comm::Communicator& host_comm, const SampleSetup& setup);

}  // namespace fp8::train
