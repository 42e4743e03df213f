// Passes of a sharded model over batches of different lengths. Weights are gathered from all ranks, so that every rank
// computes as many passes; a rank without a batch computes the first one of the round again.
#include "candidate.h"

#include <algorithm>
#include <cstring>

#include "fp8/base/clock.h"
#include "fp8/base/round.h"
#include "fp8/base/target.h"
#include "fp8/dtype/element.h"
#include "fp8/settings/mesh.h"
#include "fp8/shard/passes.h"
#include "fp8/train/device_setup.h"
#include "fp8/train/step.h"

namespace fp8::judge {
namespace {

using device::Context;
using dtype::DType;
using tensor::View;

constexpr std::int64_t kLogitRows = 64;   // rows whose logits are in memory together
constexpr std::int64_t kDeviceRows = 16;  // FP8 GEMMs of GPUs need multiples of so many rows

// The text of values, for a gather of host memory.
template <class T>
void append(std::string& text, const std::vector<T>& values) {
  text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// Reads `count` values from the text at `at`, and moves `at` behind them.
template <class T>
std::vector<T> take(const std::string& text, std::size_t& at, std::size_t count) {
  std::vector<T> values(count);
  std::memcpy(values.data(), text.data() + at, count * sizeof(T));
  at += count * sizeof(T);
  return values;
}

// A batch in host memory: ids and targets i32 [B, T], where T is rounded up on a GPU by targets that are masked.
struct Rows {
  tensor::Tensor tokens, targets;
  std::int64_t sequences, length;

  Rows(const Batch& batch, device::DeviceType device)
      : sequences(std::ssize(batch.rollouts)),
        length(device == device::DeviceType::host ? batch.length() : round_up(batch.length(), kDeviceRows)) {
    tokens = tensor::Tensor(DType::i32, {sequences, length});
    targets = tensor::Tensor(DType::i32, {sequences, length});
    std::fill_n(targets.as<std::int32_t>(), sequences * length, kIgnoredTarget);
    for (std::int64_t s = 0; s < sequences; ++s) {
      const std::vector<std::int32_t>& ids = batch.rollouts[static_cast<std::size_t>(s)].ids;
      std::int32_t* const row = tokens.as<std::int32_t>() + s * length;
      std::copy(ids.begin(), ids.end() - 1, row);
      std::fill(row + ids.size() - 1, row + length, ids.back());
      std::copy(ids.begin() + 1, ids.end(), targets.as<std::int32_t>() + s * length);
    }
  }
  model::Batch view() const { return {tokens.view(), targets.view(), sequences, length}; }
};

// A loaded model.
class Scorer {
 public:
  Scorer(const CandidateSpec& spec, const JudgeConfig& config, const ScorePlan& plan, comm::Communicator& host_comm)
      : spec_(spec),
        host_comm_(host_comm),
        mesh_(host_comm, train::mesh_of(mesh_config(config), host_comm.size(), {spec.setup}, {"fp8-judge", 1})),
        device_(config.device, spec.setup.precision, mesh_) {
    const std::int64_t length = round_up(plan.longest, kDeviceRows);
    const shard::BatchShape shape{plan.batch_size, length, {}};
    shard::MemoryPlan memory =
        shard::plan_memory(device_.context(), device_.mesh(), spec.setup.model_spec, shape, shape);
    const hf::ModelConfig& c = spec.setup.model_spec.config;
    memory.bytes += static_cast<std::size_t>(kLogitRows * (c.hidden_size * 8 + c.vocab_size * 4) + (1 << 20));
    planned_ = train::planned_forward(spec.setup.model_spec, memory.logit_bytes, spec.setup.precision);
    comm::agree(host_comm, [&] { model_.emplace(device_.context(), device_.mesh(), spec.setup.model_spec, memory); });
    if (const auto damage = train::load_model(*model_, host_comm, *spec.checkpoint, spec.setup.precision))
      throw comm::AgreedError(*damage);
    passes_.emplace(*model_);
  }

  const std::string& note() const { return device_.note(); }

  // Before the first pass, with the same batch on all ranks.
  void calibrate(const Batch& batch) {
    if (!model_->store.scales().needs_calibration()) return;
    const device::Scope scope(model_->arena);
    const Rows rows(batch, device_.type());
    train::calibrate_forward(*model_, shard::on_device(model_->ctx, rows.view()), losses_of(rows));
  }

  // Scores of the rollouts of a batch, with grids if `grids`. Collective.
  std::vector<Scored> compute(const Batch& batch, bool grids) {
    const bool recorded = model_->store.scales().record_amaxes(false);
    const device::Scope scope(model_->arena);
    const Rows rows(batch, device_.type());
    const View losses = losses_of(rows);
    model::Batch on_device = shard::on_device(model_->ctx, rows.view());
    train::observe_routes(*model_, on_device);
    const gemm::Counts before = model_->engine.counts();
    std::vector<Scored> scored(batch.rollouts.size());
    passes_->compute(on_device, [&](model::MicroBatch& m) {
      m.forward_head(losses);
      read_losses(batch, rows, losses, scored);
      for (std::size_t s = 0; s < scored.size(); ++s) {
        const Rollout& r = batch.rollouts[s];
        if (grids || r.temperature.value_or(1) != 1)
          read_logits(m, r, static_cast<std::int64_t>(s) * rows.length, grids, scored[s]);
      }
    });
    ran_ += model_->engine.counts() - before;
    expected_ += planned_(rows.sequences * rows.length) + train::planned_experts(*model_);
    model_->store.scales().record_amaxes(recorded);
    return scored;
  }

  // Throws AgreedError(fp8_missing) if fewer FP8 GEMMs ran than planned. Collective.
  void check() { train::check_planned(host_comm_, ran_, expected_, "candidate " + spec_.name()); }

 private:
  static settings::Config mesh_config(const JudgeConfig& config) {
    settings::Config c;
    c.model = config.model;
    return c;
  }
  View losses_of(const Rows& rows) const {
    return tensor::allocate(model_->ctx, DType::f32, {rows.sequences * rows.length}, "activations");
  }
  void read_losses(const Batch& batch, const Rows& rows, const View& losses, std::vector<Scored>& scored) const {
    const std::vector<float> values = tensor::to_host<float>(model_->ctx, losses);
    for (std::size_t s = 0; s < scored.size(); ++s) {
      const auto begin = values.begin() + static_cast<std::int64_t>(s) * rows.length;
      for (auto at = begin; at != begin + batch.length(); ++at) scored[s].logprobs.push_back(-*at);
    }
  }
  // Grids, and log-probabilities at the stated temperature, of a rollout whose rows begin at `first`. The logits are
  // rounded as those of the losses.
  void read_logits(model::MicroBatch& m, const Rollout& r, std::int64_t first, bool grids, Scored& scored) const {
    const std::int64_t vocabulary = spec_.setup.model_spec.config.vocab_size;
    const auto length = static_cast<std::int64_t>(r.ids.size()) - 1;
    const bool rounded = spec_.setup.model_spec.store.compute == DType::bf16;
    for (std::int64_t begin = 0; begin < length; begin += kLogitRows) {
      const device::Scope scope(*model_->ctx.arena);
      const std::int64_t count = std::min(kLogitRows, length - begin);
      const View logits = tensor::allocate(model_->ctx, DType::f32, {count, vocabulary}, "logits");
      m.forward_logits(first + begin, logits);
      std::vector<float> values = tensor::to_host<float>(model_->ctx, logits);
      if (rounded)
        for (float& v : values) v = dtype::to_float(dtype::to_bf16(v));
      read_rows(r, begin, count, {values.data(), values.size()}, grids, scored);
    }
  }
  static void read_rows(const Rollout& r, std::int64_t begin, std::int64_t count, std::span<const float> values,
                        bool grids, Scored& scored) {
    const std::size_t vocabulary = values.size() / static_cast<std::size_t>(count);
    const double stated = r.temperature.value_or(1);
    std::vector<TokenGrid> all(static_cast<std::size_t>(count));
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(begin + i + 1);
      const std::span<const float> row = values.subspan(static_cast<std::size_t>(i) * vocabulary, vocabulary);
      if (stated != 1) scored.logprobs[at - 1] = static_cast<float>(tempered(row, r.ids[at], 1 / stated));
      if (grids && is_judged(r, at)) all[static_cast<std::size_t>(i)] = grid_of(row, r.ids[at]);
    }
    for (std::int64_t i = 0; grids && i < count; ++i)
      if (is_judged(r, static_cast<std::size_t>(begin + i + 1)))
        scored.grids.push_back(all[static_cast<std::size_t>(i)]);
  }

  const CandidateSpec& spec_;
  comm::Communicator& host_comm_;
  comm::Mesh mesh_;
  train::DeviceSetup device_;
  train::PlannedForward planned_;
  std::optional<shard::ShardedModel> model_;
  std::optional<shard::ForwardPasses> passes_;
  gemm::Counts ran_;
  std::int64_t expected_ = 0;
};

// The number of judged tokens of a batch.
std::int64_t judged_in(const Batch& batch) {
  std::int64_t count = 0;
  for (const Rollout& r : batch.rollouts)
    for (std::size_t i = 1; i < r.ids.size(); ++i) count += is_judged(r, i) ? 1 : 0;
  return count;
}

// Passes on the scores of a batch that another rank sent as text.
void deliver(const Batch& batch, bool grids, const std::string& text, const EachRollout& each) {
  std::size_t at = 0;
  for (std::size_t s = 0; s < batch.rollouts.size(); ++s) {
    const Rollout& r = batch.rollouts[s];
    std::size_t judged = 0;
    for (std::size_t i = 1; i < r.ids.size(); ++i) judged += is_judged(r, i) ? 1 : 0;
    Scored scored;
    scored.logprobs = take<float>(text, at, r.ids.size() - 1);
    if (grids) scored.grids = take<TokenGrid>(text, at, judged);
    each(batch.first + static_cast<std::int64_t>(s), r, scored);
  }
}

}  // namespace

void score(const CandidateSpec& spec, const JudgeConfig& config, const ScorePlan& plan, comm::Communicator& host_comm,
           state::Journal& journal, BatchReader reader, const EachRollout& each) {
  Scorer scorer(spec, config, plan, host_comm);
  const auto start = Clock::now();
  std::int64_t grid_tokens = 0, done = 0;
  for (bool first = true;; first = false) {
    std::vector<Batch> round;
    std::vector<bool> grids;
    comm::agree(host_comm, [&] {
      while (std::ssize(round) < host_comm.size()) {
        std::optional<Batch> batch = reader.next();
        if (!batch) break;
        grids.push_back(grid_tokens < plan.grid_tokens);
        grid_tokens += judged_in(*batch);
        round.push_back(std::move(*batch));
      }
    });
    if (round.empty()) break;
    if (first) scorer.calibrate(round.front());
    const auto own = static_cast<std::size_t>(host_comm.rank());
    const bool idle = own >= round.size();
    const std::vector<Scored> scored = scorer.compute(round[idle ? 0 : own], grids[idle ? 0 : own]);
    std::string text;
    for (const Scored& s : idle ? std::vector<Scored>() : scored) {
      append(text, s.logprobs);
      append(text, s.grids);
    }
    const std::vector<std::string> all = host_comm.all_gather(text);
    for (std::size_t i = 0; i < round.size(); ++i) {
      deliver(round[i], grids[i], all[i], each);
      done = round[i].first + std::ssize(round[i].rollouts);
    }
    journal.progress(spec.name() + ": " + std::to_string(done) + "/" + std::to_string(plan.sequences) + " sequences",
                     seconds_since(start), done, plan.sequences - done);
  }
  scorer.check();
}

}  // namespace fp8::judge
