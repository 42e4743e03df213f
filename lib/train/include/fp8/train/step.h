/// One optimizer step, and the forward passes of an evaluation.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "fp8/data/sampler.h"
#include "fp8/settings/config.h"
#include "fp8/shard/passes.h"
#include "fp8/state/state.h"
#include "fp8/statistics/collector.h"

namespace fp8::train {

using ckpt::Position;
using device::Context;
using dtype::DType;
using tensor::View;

/// Number of model::ParameterRole.
inline constexpr std::size_t kRoles = static_cast<std::size_t>(model::ParameterRole::router) + 1;

/// Results of a step.
struct StepResult {
  double loss = 0;            ///< mean over the targets of the global batch, nats; NaN if all are masked
  double grad_norm = 0;       ///< before clipping; NaN if all targets are masked
  double lr = 0;              ///< used for the update
  bool skipped = false;       ///< whether a value was not finite, so that nothing was updated
  bool masked = false;        ///< all targets of the global batch are masked: nothing was computed or updated
  bool replayed = false;      ///< computed twice with equal results
  bool calibrated = false;    ///< amaxes were first recorded without FP8
  gemm::Counts gemms;         ///< GEMMs of all ranks
  quant::CastCounts casts;    ///< counts of casts of all ranks
  bool casts_counted = true;  ///< whether `casts` has the casts of this step
  /// Root mean square of what the update changed in the elements of the parameters of each model::ParameterRole; empty
  /// for roles without trained parameters, and unless it was measured.
  std::array<std::optional<double>, kRoles> update_rms{};
  comm::SentBytes sent;            ///< what all ranks sent to each other
  std::optional<double> bubble{};  ///< share of the passes in which ranks wait for other stages, if it was measured
  std::optional<shard::RoutingResult> routing{};  ///< loads of experts, if the model has any and the step computed
  double seconds = 0, data_seconds = 0;
  double busy_seconds = 0;  ///< part of `seconds` in which this rank waited for no other, on a CPU; 0 if `masked`
};

/// Scalars of a step in the memory of the device that computes it. The host reads them once, at the end of the step, so
/// that the device never waits for the host.
struct StepScalars {
  quant::CastCounts casts;  ///< since the step began
  double loss = 0;          ///< sum over the targets of this rank, and then of all
  double square_sum = 0;    ///< sum over all gradients of all ranks
  optim::Gate gate;         ///< gate of the update
};

/// The objects that a step works on. References outlive the environment.
struct StepEnvironment {
  shard::ShardedModel& model;
  comm::Communicator& host_comm;
  const device::Buffer& scalars;               ///< one StepScalars, on that device
  std::uint64_t seed = 0;                      ///< seed of dropout and of stochastic rounding
  statistics::Collector* collector = nullptr;  ///< collector that observes this step, or null
  double aux_loss = 0, z_loss = 0;             ///< factors of the losses that balance experts
};

/// Host memory for one rank's micro-batches, and views of them.
class MicroBatches {
 public:
  /// `separate`: with the starts of documents, see data::Sampler.
  MicroBatches(std::int64_t count, std::int64_t sequences, std::int64_t length, bool separate);
  /// Unread batches of a shape, for a dry run.
  MicroBatches(std::int64_t count, const shard::BatchShape& shape);
  /// Reads the part of data-parallel rank `rank` of `ranks` from a sampler that is as `separate`; returns the number of
  /// targets that have a loss. Of the G samples of a step, accumulation step m of A takes samples [mG/A, (m+1)G/A), and
  /// each rank its contiguous part of those, so that an accumulation step has the same samples on any number of ranks.
  std::int64_t read(const data::Sampler& sampler, std::int64_t step, int rank, int ranks);
  /// Micro-batch i on the context's device, in memory from its arena.
  model::Batch batch(const Context& ctx, std::int64_t i) const;
  /// The same in memory from `memory`.
  model::Batch batch(const Context& ctx, device::PooledMemory& memory, std::int64_t i) const;
  std::int64_t count() const { return count_; }
  /// The step that was read.
  std::int64_t step() const { return step_; }
  /// Tokens of this rank in the step, without padding.
  std::int64_t tokens() const;
  /// The number of the first token of micro-batch i in its global batch.
  std::int64_t first_row(std::int64_t i) const { return first_sample(i) * length_; }
  /// Tokens of a micro-batch, with padding.
  std::int64_t own_rows() const { return sequences_ * length_; }
  /// Tokens of the global batch, with padding.
  std::int64_t global_rows() const { return count_ * ranks_ * sequences_ * length_; }

 private:
  // Position in the step of the first sample of micro-batch i.
  std::int64_t first_sample(std::int64_t i) const { return (i * ranks_ + rank_) * sequences_; }
  std::int64_t count_, sequences_, length_;
  std::int64_t step_ = 0, rank_ = 0, ranks_ = 1;  // step, rank and ranks of the samples that were read
  model::Batch on_host(std::int64_t i) const;
  View rows_of(const tensor::Tensor& t, std::int64_t i) const;  // rows of micro-batch i
  tensor::Tensor tokens_, targets_, starts_;                    // i32 [count x sequences, length]; starts_ may be empty
  tensor::Tensor lengths_;           // i32 [count x sequences] with starts, see model::Batch::lengths
  data::DocumentBounds bounds_;      // bounds of the documents of a micro-batch
  std::vector<std::int64_t> pairs_;  // pairs of each micro-batch with starts, see data::Sampler::batch()
};

/// Results of forward and backward.
struct Computed {
  gemm::Counts gemms;          ///< this rank's
  shard::PassTimes times;      ///< this rank's
  shard::GradientTrace trace;  ///< this and what follows: only if requested
  double loss = 0;             ///< sum over this rank's targets
  double square_sum = 0;       ///< sum over all gradients of all ranks
};

/// The StepScalars in a buffer. The host must not access them if the buffer is on another device.
StepScalars* scalars_in(const device::Buffer& buffer);

/// The scalars, copied from the device.
StepScalars read_scalars(const StepEnvironment& env);

/// What a step has to compute.
struct StepTotals {
  std::int64_t targets = 0;  ///< targets of all ranks
  std::int64_t tokens = 0;   ///< tokens of all ranks without padding
};

/// Forward and backward without FP8, from which delayed scales without a history follow. Changes them and gradients.
/// Collective.
void calibrate(StepEnvironment& env, const MicroBatches& batches, const StepTotals& totals);

/// Forward and backward over a step's micro-batches; changes only gradients, the scalars and the loads of experts.
/// Collective.
Computed compute(StepEnvironment& env, const MicroBatches& batches, const StepTotals& totals, bool trace);

/// The loss of all ranks, the gate of the update and the update number `updates`, from 0, which the gate skips if loss
/// or norm is not finite. `changes` as ParameterStore::update(). Nothing waits for the host. Collective.
void update(StepEnvironment& env, const optim::Settings& optimizer, double clip, std::int64_t updates, double lr,
            const View& changes = {});

/// Computes like compute(), observed by the collector, if there is one. Collective.
Computed compute_observed(StepEnvironment& env, const MicroBatches& batches, const StepTotals& totals,
                          bool trace = false);

/// Throws AgreedError if fewer FP8 GEMMs ran on this rank than `planned`. Collective.
void check_planned(comm::Communicator& host_comm, const gemm::Counts& ran, std::int64_t planned,
                   const std::string& where);

/// The FP8 GEMMs of experts that must have run on this rank since the loads of experts were begun.
std::int64_t planned_experts(const shard::ShardedModel& model);

/// The sum of the counts of all ranks. Collective.
gemm::Counts sum_over_ranks(comm::Communicator& host_comm, const gemm::Counts& mine);

/// Throws AgreedError naming step, rank and tensor unless two computations of step `step` (from 1) have the same bits
/// on every rank. The results of each rank alone are compared first, so that the rank that caused a difference is named
/// and not one that summed its gradient. Collective.
void check_same_bits(comm::Communicator& host_comm, const std::vector<model::Parameter>& table, std::int64_t step,
                     const Computed& first, const Computed& second);

/// Runs step `position.step` (from 0), twice if RunConfig::paranoid says so. Throws AgreedError, before anything is
/// updated, if the two differ, and AgreedError(fp8_missing) if fewer FP8 GEMMs ran than `planned`. Collective.
StepResult run_step(StepEnvironment& env, const settings::RunConfig& config, const data::Sampler& sampler,
                    MicroBatches& batches, const Position& position, const gemm::Count& planned);

/// Sums over all sequences and ranks.
struct LossSum {
  double loss = 0;
  std::int64_t targets = 0;
  gemm::Counts gemms{};  ///< without those of sequences that a rank computes only to take part in gathers
};

/// Number of FP8 GEMMs that a forward pass over `rows` tokens must run; 0 in other precisions.
using PlannedForward = std::function<std::int64_t(std::int64_t rows)>;
/// By the precisions of the table, with blocks of logits of so many bytes, on a rank of `stage`, by default the only
/// one. `spec` outlives it.
PlannedForward planned_forward(const shard::ModelSpec& spec, std::int64_t logit_bytes,
                               const settings::PrecisionConfig& precision, const model::StageRange& stage = {});

/// A forward pass over `batch` without FP8, from which delayed scales without a history follow; `losses` f32 [rows] is
/// overwritten. Through all stages, since the ranks compute scales together from what all layers recorded. Collective.
void calibrate_forward(shard::ShardedModel& model, const model::Batch& batch, const View& losses);

/// Sets the observer of the routers in a batch of an evaluation, if the model has experts.
void observe_routes(shard::ShardedModel& model, model::Batch& batch);

/// Sequences of an evaluation.
struct EvaluationSize {
  std::int64_t samples = 0;  ///< number of samples from the beginning of the file
  std::int64_t batch = 0;    ///< number of samples on each rank at a time
  std::int64_t length = 0;   ///< tokens of a sequence
};

/// Called on every rank, round after round, with the index of the first sequence of this rank's part of the round,
/// their number, and their losses [count, T]; of ranks that share samples, one has them, and the others none. Empty: no
/// call.
using EachSamples = std::function<void(std::int64_t first, std::int64_t count, const float* losses)>;

/// Evaluates sequences in file order. Stages of layers compute different rounds at the same time. Delayed scales
/// without a history are first calibrated on this rank's first batch, without FP8; otherwise no amax is recorded.
/// Throws AgreedError if a rank cannot read its samples, and AgreedError(fp8_missing) if fewer FP8 GEMMs ran than
/// `planned`. Collective.
LossSum evaluate_samples(shard::ShardedModel& model, comm::Communicator& host_comm, const data::Sampler& sampler,
                         const EvaluationSize& size, const PlannedForward& planned, const EachSamples& each);

}  // namespace fp8::train
