/// The model of a run, an evaluation or an inspection: resolved against its checkpoint and data before memory is
/// allocated, and loaded afterwards. shard::ShardedModel assembles it in between.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp8/data/tokens.h"
#include "fp8/settings/config.h"
#include "fp8/shard/sharded_model.h"
#include "fp8/state/state.h"

namespace fp8::train {

/// The settings that determine a model.
struct ModelRequest {
  settings::PrecisionConfig precision;  ///< precision by the flags
  std::int64_t seq_length = 0;          ///< T; 0: the default of RunConfig
  std::int64_t batch_size = 0;          ///< sequences at a time on each rank
  bool any_tokenizer = false;           ///< accept data made with another tokenizer

  /// Takes them from a RunConfig, an EvalConfig or an InspectConfig.
  template <class Config>
  static ModelRequest of(const Config& c) {
    return {c.precision, c.seq_length, c.batch_size, c.any_tokenizer};
  }
};

/// A resolved model.
struct ModelSetup {
  shard::ModelSpec model_spec;           ///< with the compute precisions as they run
  std::vector<model::Parameter> table;   ///< the parameters with their precisions under FP8, which checkpoints record
  settings::PrecisionConfig precision;   ///< precision of the settings, or of the FP8 codes of the checkpoint
  std::int64_t length = 0;               ///< tokens of a sequence
  std::optional<std::string> tokenizer;  ///< identifier of the model's tokenizer, if it is known
  std::vector<std::string> notes;        ///< notes for the user; some may be empty
};

/// Resolves the model `config`, whose weights `start` holds, for sequences of `tokens`. Its precisions are those of the
/// settings or, if they do not select linears, those in `recorded`. Throws Error if the settings contradict each other,
/// or do not fit the checkpoint or the data.
ModelSetup resolve_model(const ModelRequest& request, const hf::ModelConfig& config, const ckpt::Checkpoint& start,
                         const ckpt::Checkpoint& recorded, const data::TokenFile& tokens);

/// The checkpoint's model for forward passes over sequences of ModelRequest::seq_length tokens that come from no token
/// file. Throws Error as above, and Error(fp8_missing) if FP8 is requested and no forward GEMM runs in FP8.
ModelSetup resolve_model(const ModelRequest& request, const ckpt::Checkpoint& checkpoint);

/// The model of an evaluation or an inspection, which is the checkpoint's.
ModelSetup resolve_model(const settings::EvalConfig& config, const ckpt::Checkpoint& checkpoint,
                         const data::TokenFile& tokens);

/// How a tool computes models on a mesh.
struct MeshUse {
  std::string tool;            ///< for a command in a message
  std::int64_t sequences = 1;  ///< sequences of the smallest pass of a rank
  bool statistics = false;     ///< whether there are statistics of tensors
  bool stages = true;          ///< whether layers may be divided into stages
};

/// The mesh of `ranks` ranks that the flags describe. Throws Error as settings::fitting_mesh() does, unless it fits all
/// of `models`, which are those of one checkpoint.
comm::MeshShape mesh_of(const settings::Config& config, std::int64_t ranks, const std::vector<ModelSetup>& models,
                        const MeshUse& use);

/// state::load(), after which scales of another format or margin than those of `precision` must be calibrated again.
/// Returns why the checkpoint is damaged, the same on every rank. Collective.
std::optional<std::string> load_model(shard::ShardedModel& model, comm::Communicator& host_comm,
                                      const ckpt::Checkpoint& checkpoint, const settings::PrecisionConfig& precision,
                                      bool moments = false, const settings::AdapterValues& adapters = {});

}  // namespace fp8::train
