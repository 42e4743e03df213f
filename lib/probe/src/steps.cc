// Times a run of crate train in each precision, on a fresh model and random tokens.
#include "steps.h"

#include <algorithm>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/folders.h"
#include "fp8/comm/comm.h"
#include "fp8/data/tokens.h"
#include "fp8/device/philox.h"
#include "fp8/model/initialize.h"
#include "fp8/train/run.h"
#include "timing.h"

namespace fp8::probe {
namespace {

constexpr std::int64_t kMostLength = 1024;
constexpr std::int64_t kNotCounted = 1;  // the first step creates GEMM plans and touches memory

// Runs one precision and reads the step records.
StepsResult time_side(const BenchOptions& options, const ScratchFolder& folder, const Batch& batch, bool fp8) {
  settings::RunConfig config;
  config.model = folder.at("model.h5"), config.data = folder.at("data.h5"), config.out = folder.at("run");
  config.seq_length = batch.length, config.batch_size = batch.sequences;
  config.steps = options.steps + kNotCounted;
  config.device = options.device;
  config.precision.precision = fp8 ? settings::Precision::fp8 : settings::Precision::bf16;
  config.precision.recipe = std::string(options.recipe->name);
  config.schedule.lr = 1e-4;
  config.flags = json::object({});
  std::vector<double> seconds;
  StepsResult result;
  state::Hooks hooks;
  hooks.record = [&](const json::Value& record) {
    const json::Object& r = record.as_object();
    if (r.get_string("type", "record") != "step") return;
    if (options.progress)
      options.progress(std::string(fp8 ? "FP8" : "bf16") + " step " + std::to_string(r.get_int("step", "record")));
    if (r.get_int("step", "record") > kNotCounted) seconds.push_back(r.get_double("step_s", "record"));
    result.fp8_flop_share = r.get_double("fp8_flop_share", "record");
    result.memory_peak_bytes = r.get_int("memory_peak_bytes", "record");
  };
  const auto alone = comm::solo();
  (void)train::run(config, *alone, hooks);
  remove_tree(config.out);
  result.seconds = timing_of(seconds);
  result.samples = std::move(seconds);
  result.tokens_per_s = static_cast<double>(batch.sequences * batch.length) / result.seconds.median;
  return result;
}

}  // namespace

Batch batch_of(const hf::ModelConfig& model, std::int64_t tokens) {
  std::int64_t length = std::min({tokens, model.max_position_embeddings, kMostLength});
  if (model.sliding_window) length = std::min(length, *model.sliding_window);
  return {std::max<std::int64_t>(1, tokens / length), length};
}

void write_random_tokens(const std::string& path, std::int64_t vocabulary, std::int64_t count) {
  data::TokenWriter writer(path, vocabulary, std::nullopt, false, false);
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = device::philox(1, i, 0)[0] % static_cast<std::uint32_t>(vocabulary);
  writer.append(tokens);
  (void)writer.finish();
}

void time_steps(const BenchOptions& options, BenchResult& result) {
  const ScratchFolder folder;
  const Batch batch = batch_of(options.model, options.tokens);
  result.sequences = batch.sequences, result.length = batch.length;
  if (options.progress) options.progress("steps: creating the model");
  (void)model::initialize(options.model, folder.at("model.h5"), {});
  write_random_tokens(folder.at("data.h5"), options.model.vocab_size, 2 * batch.sequences * batch.length + 1);
  result.bf16_steps = time_side(options, folder, batch, false);
  result.fp8_steps = time_side(options, folder, batch, true);
  result.steps = ratio_of(result.bf16_steps->samples, result.fp8_steps->samples);
}

}  // namespace fp8::probe
