// Evaluation of a checkpoint: forward passes over all samples in file order.
#include "fp8/train/evaluate.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/clock.h"
#include "fp8/data/tokens.h"
#include "fp8/json/json.h"
#include "fp8/settings/checks.h"
#include "fp8/settings/resume.h"
#include "fp8/state/run_folder.h"
#include "fp8/train/device_setup.h"
#include "fp8/train/model_setup.h"
#include "fp8/train/records.h"

namespace fp8::train {
namespace {

// This rank's sequence records of one round, one per line.
std::string sequence_records(std::int64_t first, std::int64_t count, std::int64_t length, const float* losses) {
  std::string lines;
  for (std::int64_t i = 0; i < count; ++i) {
    json::Array values(losses + i * length, losses + (i + 1) * length);
    lines +=
        json::dump(json::object({{"type", "sequence"}, {"index", first + i}, {"losses", std::move(values)}})) + "\n";
  }
  return lines;
}

void emit_lines(state::Journal& journal, const std::string& lines) {
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = lines.find('\n', begin);
    journal.emit(json::parse(std::string_view(lines).substr(begin, end - begin), "a rank's record"));
    begin = end + 1;
  }
}

}  // namespace

void evaluate(const settings::EvalConfig& config, comm::Communicator& host_comm, const state::Hooks& hooks) {
  state::Journal journal(hooks, host_comm);
  std::optional<data::TokenFile> tokens;
  std::optional<data::Sampler> sampler;
  ModelSetup setup;
  json::Value shared;
  comm::agree(host_comm, [&] { tokens.emplace(config.data); });
  const ckpt::Checkpoint checkpoint = state::open_on_all_ranks(host_comm, config.model);
  comm::agree(host_comm, [&] {
    setup = resolve_model(config, checkpoint, *tokens);
    setup.notes.push_back(settings::note_of_unused(setup.precision, setup.precision.recipe_names()));
    settings::check_some_fp8(setup.model_spec.table, setup.precision, false);
    setup.model_spec.store.training = false;
    sampler.emplace(*tokens, data::SamplerKind::sequential, 0, setup.length, 1, config.documents);
    for (std::string& note : settings::document_notes(*tokens, *sampler)) setup.notes.push_back(std::move(note));
    shared = json::object({{"model", checkpoint.digest()}, {"data", tokens->digest()}});
  });
  settings::check_same_on_all_ranks(host_comm, shared);
  for (const std::string& note : setup.notes)
    if (!note.empty()) journal.note(note);
  const DeviceSetup device(config.device, setup.precision, host_comm);
  if (!device.note().empty()) journal.note(device.note());
  const EvaluationSize size{sampler->samples(), std::min(config.batch_size, sampler->samples()), setup.length};
  std::optional<shard::ShardedModel> model;
  shard::MemoryPlan plan;
  comm::agree(host_comm, [&] {
    const shard::BatchShape shape{size.batch, size.length, sampler->bounds(size.batch)};
    plan = shard::plan_memory(device.context(), device.device_comm(), setup.model_spec, shape, shape);
    model.emplace(device.context(), device.device_comm(), setup.model_spec, plan);
  });
  if (const auto damage = load_model(*model, host_comm, checkpoint, setup.precision)) throw comm::AgreedError(*damage);
  const auto start = Clock::now();
  const EachSamples each = [&](std::int64_t first, std::int64_t count, const float* losses) {
    if (config.per_token) {
      for (const std::string& lines : host_comm.all_gather(sequence_records(first, count, size.length, losses)))
        emit_lines(journal, lines);
    }
    // Rank 0, which shows it, has the first samples of a round.
    const std::int64_t done = std::min(first + size.batch * host_comm.size(), size.samples);
    journal.progress(std::to_string(done) + "/" + std::to_string(size.samples) + " sequences", seconds_since(start),
                     done, size.samples - done);
  };
  const LossSum sum = evaluate_samples(*model, host_comm, *sampler, size,
                                       planned_forward(setup.model_spec, plan.logit_bytes, setup.precision), each);
  if (sum.targets == 0) throw comm::AgreedError(config.data + ": no token of it counts as a target, so it has no loss");
  json::Value record = eval_record(-1, sum, setup.precision, device.type());
  record.as_object().set("documents", sampler->separate() ? "separate" : "joined");
  journal.emit(record);
  if (!std::isfinite(sum.loss)) journal.note("the loss is not finite");
  journal.rethrow();
}

}  // namespace fp8::train
