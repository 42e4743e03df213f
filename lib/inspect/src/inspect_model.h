// The batch of an inspection, and a model that computes it without updates. Private to the crate.
#pragma once

#include <functional>
#include <vector>

#include "fp8/inspect/inspect.h"
#include "fp8/train/device_setup.h"
#include "fp8/train/model_setup.h"
#include "fp8/train/records.h"
#include "fp8/train/step.h"

namespace fp8::inspect {

using device::Context;
using dtype::DType;
using tensor::View;

// The objects that all recipes share. References outlive them.
struct Inspection {
  comm::Communicator& host_comm;
  const comm::Mesh& mesh;  // all ranks of host_comm
  state::Journal& journal;
  const ckpt::Checkpoint& checkpoint;
  const data::TokenFile& tokens;
};

// An inspection of one recipe, before memory is allocated.
struct RecipeSetup {
  settings::InspectConfig config;  // configuration with the recipe, or that of FP8 codes in the checkpoint
  train::ModelSetup eval;
  std::optional<data::Sampler> sampler;
  shard::BatchShape shape;  // shape of the batch of a rank
};

// Throws AgreedError if the checkpoint, the data and the settings do not fit together. Collective.
RecipeSetup resolve(const settings::InspectConfig& config, const Inspection& all);

// A forward pass over a batch, which gives the losses f32 [M] of its targets.
using Forward = std::function<void(const Context& ctx, const model::Batch& batch, const View& losses)>;

// A model with the batch on one rank. Not movable: the environment refers to its members.
struct InspectedModel {
  // Allocates the model that `spec` describes, with memory for the plan `plan`, reads the batch and the weights. Throws
  // AgreedError if the checkpoint is damaged or the batch has no target. Collective.
  InspectedModel(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device,
                 const shard::ModelSpec& spec, statistics::Collector* collector);
  InspectedModel(const InspectedModel&) = delete;
  InspectedModel& operator=(const InspectedModel&) = delete;

  // Forward and backward over the batch, observed by the collector, if there is one. Returns the GEMMs of all ranks.
  // Throws AgreedError(fp8_missing) if fewer FP8 GEMMs ran than `setup` plans. Collective.
  gemm::Counts compute(const RecipeSetup& setup, const Inspection& all);

  // Reads batch `number` from 0, of which the first is that of --step. Throws AgreedError. Collective.
  void read_batch(const RecipeSetup& setup, const Inspection& all, std::int64_t number);
  // The losses of this rank's sequences in that batch, each summed over its targets: of `forward`, or, without one, of
  // the model. Collective.
  std::vector<double> sequence_losses(const Forward& forward = {});
  // The loss of one of these sequences under `forward`. Collective.
  double sequence_loss(std::int64_t number, const Forward& forward);
  // The number of targets of each of these sequences; 0 on a rank whose sequences another rank counts, see
  // comm::Mesh::counts_samples().
  std::vector<std::int64_t> sequence_targets();

  // Mean loss of the last pass over the batch. Collective.
  double loss() const;

  device::Buffer scalars;
  std::optional<shard::ShardedModel> model;
  std::optional<train::MicroBatches> batches;
  train::StepTotals totals;  // targets and tokens of all ranks in the first batch
  std::optional<train::StepEnvironment> env;
};

}  // namespace fp8::inspect
