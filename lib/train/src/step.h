// One optimizer step: batches in, numbers out. Private to the crate.
#pragma once

#include <vector>

#include "fp8/data/sampler.h"
#include "fp8/train/config.h"
#include "state.h"

namespace fp8::train {

// What a step found.
struct StepResult {
  double loss = 0;          // mean over the global batch's targets, nats; NaN where it has none
  double grad_norm = 0;     // before clipping; NaN where there is no target
  double lr = 0;            // used for the update
  bool skipped = false;     // not finite: nothing was updated
  bool masked = false;      // no target in the global batch: nothing was computed or updated
  bool replayed = false;    // computed twice, and equal
  gemm::Counts gemms;       // this rank's
  quant::CastCounts casts;  // of all ranks
  double seconds = 0, data_seconds = 0;
};

// Numbers of a step that lie where it is computed, so that a device does not wait for the host, which reads them once.
struct StepScalars {
  quant::CastCounts casts;       // since the step began
  quant::CastCounts casts_told;  // until the update, which casts weights for the next step
  double loss = 0;               // sum over the targets of this rank, and then of all
  double square_sum = 0;         // of all gradients of all ranks
  optim::Gate gate;              // for the update
};

// Everything a step works on. References outlive it.
struct StepEnvironment {
  Context ctx;
  comm::Communicator& world;
  comm::Communicator& group;  // moves memory of the context's device
  gemm::Engine& engine;
  const model::Decoder& decoder;
  ParameterStore& store;
  const device::Buffer& scalars;  // one StepScalars, on the context's device
  const RunConfig& config;
};

// Host memory for one rank's micro-batches, and views of them.
class MicroBatches {
 public:
  MicroBatches(std::int64_t count, std::int64_t sequences, std::int64_t length);
  // Reads this rank's part of a step; returns how many targets carry loss.
  std::int64_t read(const data::Sampler& sampler, std::int64_t step, std::int64_t first);
  // Micro-batch i where the context works; memory from its arena.
  model::Batch batch(const Context& ctx, std::int64_t i) const;
  std::int64_t count() const { return count_; }

 private:
  std::int64_t count_, sequences_, length_;
  tensor::Tensor tokens_, targets_;  // i32 [count x sequences, length]
};

// What forward and backward make of a step.
struct Computed {
  gemm::Counts gemms;     // this rank's
  GradientTrace trace;    // empty, as what follows, unless asked for
  double loss = 0;        // sum over this rank's targets
  double square_sum = 0;  // of all gradients of all ranks
};

// Where a buffer's StepScalars are; not to be read by the host where the buffer lies on a device.
StepScalars* scalars_in(const device::Buffer& buffer);

// Forward and backward over a step's micro-batches, `targets` of all ranks; changes gradients and the numbers alone.
// Collective.
Computed compute(StepEnvironment& env, const MicroBatches& batches, std::int64_t targets, bool trace);

// Throws AgreedError that names step, rank and tensor unless two computations of step `step` (from 1) are equal to the
// last bit on every rank. Looks first at what each rank made by itself, so that a rank whose sum is spoilt by another's
// gradient is not taken for the cause. Collective.
void check_same_bits(comm::Communicator& world, const std::vector<model::Parameter>& table, std::int64_t step,
                     const Computed& first, const Computed& second);

// Runs step `position.step` (from 0), twice where --paranoid says so. Throws AgreedError before anything has changed
// when both are not the same, and AgreedError(fp8_missing) when fewer FP8 GEMMs ran than `planned`.
// Collective.
StepResult run_step(StepEnvironment& env, const data::Sampler& sampler, MicroBatches& batches, const Position& position,
                    const gemm::Count& planned);

// Sum of losses and number of targets over the samples [first, first + batch) of each rank; what an evaluation is made
// of.
struct LossSum {
  double loss = 0;
  std::int64_t targets = 0;
};

// FP8 GEMMs that a forward pass over `rows` tokens is to run; none outside FP8.
using PlannedForward = std::function<std::int64_t(std::int64_t rows)>;
// As the precisions of the table say. References outlive it.
PlannedForward planned_forward(const hf::ModelConfig& model, const std::vector<model::Parameter>& table,
                               const PrecisionConfig& precision);

// Evaluates `samples` samples in file order, `batch` on each rank at a time. `each`, if not empty, is called on every
// rank with the index of the first sample of this rank's part, how many there are, and their losses [count, T], round
// after round. Throws AgreedError(fp8_missing) when fewer FP8 GEMMs ran than `planned`. Collective.
using EachSamples = std::function<void(std::int64_t first, std::int64_t count, const float* losses)>;
LossSum evaluate_samples(const Context& ctx, comm::Communicator& world, gemm::Engine& engine,
                         const model::Decoder& decoder, model::WeightSource& weights, const data::Sampler& sampler,
                         std::int64_t samples, std::int64_t batch, std::int64_t length, const PlannedForward& planned,
                         const EachSamples& each);

}  // namespace fp8::train
