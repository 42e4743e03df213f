// Greedy generation on the sharded model: all ranks compute the same pass, which goes through the stages, and the first
// one of the last stage, which has the logits, chooses.
#include "sample.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "fp8/base/round.h"
#include "fp8/cli/command.h"
#include "fp8/generate/ends.h"
#include "fp8/generate/generator.h"
#include "fp8/generate/text_stream.h"
#include "fp8/shard/passes.h"

namespace fp8::train {
namespace {

using dtype::DType;
using tensor::View;

// Texts are filled up to a multiple of this with tokens that those before them do not attend to: FP8 GEMMs of GPUs need
// multiples of 16 rows, and there are fewer kinds of GEMMs to prepare.
constexpr std::int64_t kRows = 16;

std::int64_t padded(std::size_t tokens) { return round_up(static_cast<std::int64_t>(tokens), kRows); }

// Logits f32 [1, V] of the token after the text, in memory from the arena; undefined in all stages but the last.
// Collective.
View next_logits(shard::ShardedModel& model, const std::vector<std::int32_t>& text) {
  std::vector<std::int32_t> rows = text;
  rows.resize(static_cast<std::size_t>(padded(text.size())), text.back());
  const auto length = static_cast<std::int64_t>(rows.size());
  const View logits = tensor::allocate(model.ctx, DType::f32, {1, model.decoder.config().vocab_size}, "logits");
  const View tokens = tensor::make_view(rows.data(), DType::i32, device::DeviceType::host, {1, length});
  shard::logits(model, shard::on_device(model.ctx, {tokens, {}, 1, length}), static_cast<std::int64_t>(text.size()) - 1,
                logits);
  return logits;
}

// The most probable token; nothing if a logit is not finite.
std::optional<std::int64_t> most_probable(std::span<const float> logits) {
  if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); })) return std::nullopt;
  return generate::Sampler({.temperature = 0}).choose(logits, 0, 0);
}

}  // namespace

shard::BatchShape SampleSetup::shape() const {
  return {1, padded(prompt.size() + static_cast<std::size_t>(tokens) - 1), {}};
}

std::optional<SampleSetup> resolve_sample(const settings::RunConfig& config, const ckpt::Checkpoint& checkpoint,
                                          const hf::ModelConfig& model, const std::optional<std::string>& tokenizer_id,
                                          const std::map<std::string, std::string>& texts,
                                          const std::string& template_end) {
  if (config.sample_every == 0) return std::nullopt;
  std::optional<generate::Codec> codec = generate::Codec::of(checkpoint, texts);
  if (!codec && tokenizer_id == "bytes") codec.emplace();
  if (!codec)
    throw Error(cli::flag_name("sample-prompt") + ": " + checkpoint.path() +
                " has no tokenizer.json, and the data is not known to be bytes, so text has no tokens" +
                " (fp8-init --tokenizer stores one)");
  SampleSetup setup{std::move(*codec), {}, 0, {}};
  try {
    setup.prompt = setup.codec.encode(*config.sample_prompt);
    generate::check_prompt(setup.prompt, model);
  } catch (const Error& e) {
    throw Error(cli::flag_name("sample-prompt") + ": " + e.what());
  }
  setup.tokens =
      std::min(config.sample_tokens, generate::context_of(model) - static_cast<std::int64_t>(setup.prompt.size()));
  setup.end_tokens = generate::end_tokens(checkpoint, model, &setup.codec, template_end);
  return setup;
}

SampledText sample_text(shard::ShardedModel& model, comm::Communicator& host_comm, const SampleSetup& setup) {
  SampledText out;
  std::vector<std::int32_t> text(setup.prompt.begin(), setup.prompt.end());
  generate::TextStream stream(setup.codec, setup.prompt, {});
  const int chooser = host_comm.size() - model.store.mesh().of_stage().size();  // the first rank of the last stage
  const bool recorded = model.store.scales().record_amaxes(false);
  for (std::int64_t i = 0; i < setup.tokens; ++i) {
    const device::Scope scope(model.arena);
    const View logits = next_logits(model, text);
    std::int64_t next = -1;
    if (host_comm.rank() == chooser) next = most_probable(tensor::to_host<float>(model.ctx, logits)).value_or(-1);
    host_comm.broadcast(std::as_writable_bytes(std::span(&next, 1)), chooser);
    out.finite = next >= 0;
    if (!out.finite) break;
    out.ids.push_back(static_cast<std::uint32_t>(next));
    out.text += stream.add(out.ids.back());
    text.push_back(static_cast<std::int32_t>(next));
    if (std::ranges::find(setup.end_tokens, next) != setup.end_tokens.end()) break;
  }
  model.store.scales().record_amaxes(recorded);
  out.text += stream.finish();
  return out;
}

}  // namespace fp8::train
