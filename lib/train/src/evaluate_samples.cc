// The forward passes of an evaluation. Rounds flow through the stages of layers: in turn t all ranks read round t, and
// stage s computes round t - s, so that stages compute different rounds at the same time. The ranks agree on errors
// once a turn, when no message between stages is under way. With one stage a turn is a round.
#include <algorithm>
#include <numeric>
#include <vector>

#include "fp8/base/round.h"
#include "fp8/train/step.h"
#include "tokens_of.h"

namespace fp8::train {
namespace {

double sum_of(std::span<const float> losses) { return std::accumulate(losses.begin(), losses.end(), 0.0); }

// A rank's part of a round.
struct Part {
  std::int64_t first = 0;  // index of the first sample
  std::int64_t count = 0;  // number of samples
  std::int64_t rows = 0;   // number of sequences that are computed, at least `count`
};

// Host memory for the samples of one round on this rank.
class EvaluationBatch {
 public:
  EvaluationBatch(const EvaluationSize& size, bool separate)
      : length_(size.length),
        tokens_(DType::i32, {size.batch, size.length}),
        targets_(DType::i32, {size.batch, size.length}) {
    if (!separate) return;
    starts_ = tensor::Tensor(DType::i32, {size.batch, size.length});
    lengths_ = tensor::Tensor(DType::i32, {size.batch});
  }
  // Reads the samples of a part; returns the number of their targets. Sample 0 without its targets fills up its rows.
  std::int64_t read(const data::Sampler& sampler, const Part& part) {
    rows_ = part.rows;
    bounds_ = sampler.bounds(rows_);
    pairs_ = 0;
    for (std::int64_t i = 0; i < rows_; ++i) {
      const auto row = [&](const tensor::Tensor& t) { return ints_of(t.view().rows(i, i + 1)); };
      const std::int64_t sample = i < part.count ? part.first + i : 0;
      pairs_ += sampler.sample(sample, row(tokens_), row(targets_),
                               starts_.view().empty() ? std::span<std::int32_t>() : row(starts_));
      if (i >= part.count) std::ranges::fill(row(targets_), kIgnoredTarget);
      if (!lengths_.view().empty())
        ints_of(lengths_.view())[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(sampler.length_of(sample));
    }
    return count_targets(ints_of(targets_.view().rows(0, rows_)));
  }
  model::Batch batch(const Context& ctx) const {
    model::Batch batch{tokens_.view().rows(0, rows_), targets_.view().rows(0, rows_), rows_, length_};
    if (!starts_.view().empty()) {
      batch.documents = {starts_.view().rows(0, rows_), bounds_.count, bounds_.longest, pairs_};
      batch.lengths = lengths_.view().rows(0, rows_);
    }
    return shard::on_device(ctx, batch);
  }

 private:
  std::int64_t length_, rows_ = 0, pairs_ = 0;
  tensor::Tensor tokens_, targets_, starts_;  // i32 [batch, length]; starts_ may be empty
  tensor::Tensor lengths_;                    // i32 [batch] with starts, see model::Batch::lengths
  data::DocumentBounds bounds_;
};

class Evaluation {
 public:
  Evaluation(shard::ShardedModel& model, comm::Communicator& host_comm, const data::Sampler& sampler,
             const EvaluationSize& size, const PlannedForward& planned, const EachSamples& each)
      : model_(model),
        host_comm_(host_comm),
        sampler_(sampler),
        size_(size),
        planned_(planned),
        each_(each),
        mesh_(model.store.mesh()),
        passes_(model) {
    // A round is read in the same turn on all ranks, so that all of them have the same error.
    for (int i = 0; i <= model.store.stage().number; ++i) read_.emplace_back(size, sampler.separate());
  }

  LossSum run() {
    const std::int64_t rounds = divide_up(size_.samples, size_.batch * mesh_.data_parts());
    const std::int64_t stage = model_.store.stage().number, last = model_.store.stage().stages - 1;
    const bool recorded = model_.store.scales().record_amaxes(false);
    for (std::int64_t turn = 0; turn < rounds + last; ++turn) {
      comm::agree(host_comm_, [&] {
        if (turn < rounds) read(turn);
      });
      if (turn == 0 && model_.store.scales().needs_calibration()) calibrate();
      const std::int64_t round = turn - stage;
      if (round >= 0 && round < rounds)
        compute(round);
      else
        passes_.send();
      if (each_ && turn >= last) {
        const Part part = part_of(turn - last);
        each_(part.first, mesh_.counts_samples() ? part.count : 0, losses_.data());
      }
    }
    model_.store.scales().record_amaxes(recorded);
    check_planned(host_comm_, sum_.gemms, gemms_, "the evaluation");
    sum_.gemms = sum_over_ranks(host_comm_, sum_.gemms);
    host_comm_.all_reduce(std::span<double>(&sum_.loss, 1), comm::Reduce::sum);
    host_comm_.all_reduce(std::span<std::int64_t>(&sum_.targets, 1), comm::Reduce::sum);
    return sum_;
  }

 private:
  // Weights are gathered from all ranks, so a rank without samples runs one that has no targets; and ranks that share
  // experts plan their passes from equal numbers of rows.
  Part part_of(std::int64_t round) const {
    const std::int64_t begin = round * size_.batch * mesh_.data_parts();
    Part part;
    part.first = std::min(size_.samples, begin + mesh_.data_index() * size_.batch);
    part.count = std::min(size_.samples - part.first, size_.batch);
    const std::int64_t most = mesh_.experts().size() > 1 ? std::min(size_.samples - begin, size_.batch) : 1;
    part.rows = host_comm_.size() > 1 ? std::max(part.count, most) : part.count;
    return part;
  }
  EvaluationBatch& batch_of(std::int64_t round) { return read_[static_cast<std::size_t>(round % std::ssize(read_))]; }
  void read(std::int64_t round) {
    const std::int64_t targets = batch_of(round).read(sampler_, part_of(round));
    if (mesh_.counts_samples()) sum_.targets += targets;
  }
  View allocate_losses(const Part& part) const {
    return tensor::allocate(model_.ctx, DType::f32, {part.rows * size_.length}, "activations");
  }
  // Through all stages, since the ranks compute scales together from what all layers recorded.
  void calibrate() {
    const device::Scope scope(model_.arena);
    const View losses = allocate_losses(part_of(0));
    calibrate_forward(model_, batch_of(0).batch(model_.ctx), losses);
  }
  // This stage's part of a round; adds its losses on the last stage.
  void compute(std::int64_t round) {
    const Context& ctx = model_.ctx;
    const Part part = part_of(round);
    const device::Scope scope(model_.arena);
    const View losses = allocate_losses(part);
    model::Batch batch = batch_of(round).batch(ctx);
    const gemm::Counts before = model_.engine.counts();
    observe_routes(model_, batch);
    passes_.compute(batch, [&](model::MicroBatch& m) { m.forward_head(losses); });
    if (part.count > 0) {
      sum_.gemms += model_.engine.counts() - before;
      gemms_ += planned_(part.rows * size_.length) + planned_experts(model_);
    }
    if (!mesh_.counts_samples()) return;
    losses_ = tensor::to_host<float>(ctx, losses);
    sum_.loss += sum_of(losses_);
  }

  shard::ShardedModel& model_;
  comm::Communicator& host_comm_;
  const data::Sampler& sampler_;
  const EvaluationSize& size_;
  const PlannedForward& planned_;
  const EachSamples& each_;
  const comm::Mesh& mesh_;
  shard::ForwardPasses passes_;
  std::vector<EvaluationBatch> read_;  // rounds that were read and that this stage has not computed
  std::vector<float> losses_;          // losses of the last round on the rank that counts them
  std::int64_t gemms_ = 0;             // FP8 GEMMs that must have run on this rank
  LossSum sum_;
};

}  // namespace

void calibrate_forward(shard::ShardedModel& model, const model::Batch& batch, const View& losses) {
  const bool recorded = model.store.scales().record_amaxes(true);
  model.store.scales().begin_calibration();
  shard::forward(model, batch, losses);
  model.store.end_calibration(model.ctx);
  model.store.scales().record_amaxes(recorded);
}

void observe_routes(shard::ShardedModel& model, model::Batch& batch) {
  if (!model.experts) return;
  model.experts->begin_inference();
  batch.routing = &*model.experts;
}

LossSum evaluate_samples(shard::ShardedModel& model, comm::Communicator& host_comm, const data::Sampler& sampler,
                         const EvaluationSize& size, const PlannedForward& planned, const EachSamples& each) {
  return Evaluation(model, host_comm, sampler, size, planned, each).run();
}

}  // namespace fp8::train
