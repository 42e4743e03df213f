// The settings of a run, resolved against its model, data and checkpoints. Private to the crate.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fp8/base/checked.h"
#include "fp8/comm/mesh.h"
#include "fp8/data/sampler.h"
#include "fp8/data/tokens.h"
#include "fp8/settings/resume.h"
#include "fp8/shard/sharded_model.h"
#include "fp8/state/run_folder.h"
#include "fp8/state/state.h"
#include "fp8/train/device_setup.h"
#include "fp8/train/model_setup.h"
#include "sample.h"

namespace fp8::train {

using ckpt::Position;
using dtype::DType;

// The token files that a run reads.
struct RunInputs {
  std::optional<data::TokenFile> tokens, eval_tokens;
};

// The parts of a run, found before anything is written. Equal on every rank.
struct RunSetup {
  settings::RunConfig config;           // resolved: steps, sequence length, schedule
  shard::ModelSpec model_spec;          // precisions as they run
  std::vector<model::Parameter> table;  // precisions under FP8, which checkpoints record
  std::string source;                   // checkpoint to load: MODEL, or the newest of the run
  bool resuming = false;
  comm::MeshShape mesh;  // of all ranks
  Position position;
  std::int64_t global_batch = 0, last_step = 0;
  std::optional<data::Sampler> sampler, eval_sampler;  // the second if there is data for evaluation
  json::Value settings;                          // settings that may not change unless RunConfig::change names them
  std::optional<hf::LoraConfig> lora;            // the adapters that the settings ask for
  std::optional<hf::AdapterFolder> adapter;      // adapter that the run begins with
  std::vector<settings::SettingChange> changes;  // since the checkpoint, with precision, recipe and mesh
  std::optional<std::string> tokenizer;          // identifier for checkpoints without a tokenizer.json
  std::map<std::string, std::string> texts;      // files beside the tokenizer for checkpoints
  std::optional<SampleSetup> sample;             // how text is sampled, if it is
  double bubble = 0;                             // expected_bubble() of a step
  std::vector<std::string> notes;                // notes for the user

  // Divides the layers into stages by what they cost on the device of the run. resolve() does not know it.
  void divide_layers(device::DeviceType device);
  // Whether a run is resumed with another optimizer, whose state begins anew.
  bool changes_optimizer() const;
  // Whether the moments of the checkpoint are those of the run.
  bool moments() const { return resuming && !changes_optimizer(); }
  // Whether a change is of more than the mesh, of which the bytes of a checkpoint do not tell.
  bool changes_computation() const;
  // FP8 GEMMs of a step on a rank of a stage, with blocks of logits of so many bytes.
  gemm::Count planned(std::int64_t logit_bytes, const model::StageRange& stage) const;
  // Shape of a micro-batch, or of a batch of an evaluation.
  shard::BatchShape shape(const data::Sampler& samples) const {
    return {config.batch_size, config.seq_length, samples.bounds(config.batch_size)};
  }
  std::int64_t tokens_per_step() const { return checked_mul(global_batch, config.seq_length, "tokens of a step"); }
};

// Opens the token files of a run. Collective.
RunInputs open_inputs(const settings::RunConfig& config, comm::Communicator& host_comm);

// Finds everything that a run needs to know before it allocates memory. Throws AgreedError for settings that do not fit
// the ranks, the model, the data or the checkpoint to resume, and when settings or files differ between ranks.
// `ranks`: the number of ranks of the run, if it is not that of the communicator. Collective.
RunSetup resolve(const settings::RunConfig& config, comm::Communicator& host_comm, const RunInputs& inputs,
                 const state::RunCheckpoints& checkpoints, std::optional<std::int64_t> ranks = {});

// {"type":"run"}, the first record of a start. `memory_plan`: MemoryPlan::to_json() of the job.
json::Value run_record(const RunSetup& s, const json::Value& memory_plan, const DeviceSetup& work);

}  // namespace fp8::train
