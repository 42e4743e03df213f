/// A run that is planned: its model, which may be a configuration alone, and what each of its ranks would hold and
/// compute. Nothing here reads weights or data, or starts a process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/comm/mesh.h"
#include "fp8/hf/config.h"
#include "fp8/settings/config.h"
#include "fp8/shard/sharded_model.h"

namespace fp8::plan {

/// The model of a plan.
struct Model {
  std::string name;                            ///< as given, for messages
  hf::ModelConfig config;                      ///< sizes
  std::optional<ckpt::Checkpoint> checkpoint;  ///< whose recorded precisions count; nothing: a configuration alone
  dtype::DType stored = dtype::DType::f32;     ///< format of the weights of a configuration
  std::vector<std::string> notes;              ///< notes for the user
};

/// Opens a checkpoint or the newest of a run, a config.json, a folder of Hugging Face or a preset. `keys`: KEY=VALUE to
/// set in a configuration. Throws Error naming what is missing or wrong, and for keys of a checkpoint.
Model open_model(const std::string& name, const std::vector<std::string>& keys);

/// One run on one mesh.
struct Run {
  shard::ModelSpec spec;                ///< what each rank assembles
  comm::MeshShape mesh;                 ///< ranks along each dimension
  int ranks_per_node = 8;               ///< consecutive ranks on each host
  std::int64_t batch_size = 1;          ///< sequences of a micro-batch of a rank
  std::int64_t length = 1;              ///< T
  std::int64_t micro_batches = 1;       ///< of a step on each rank
  settings::PrecisionConfig precision;  ///< of the linears
  std::vector<std::string> notes;       ///< notes for the user

  /// Shape of a micro-batch.
  shard::BatchShape shape() const { return {batch_size, length, {}}; }
  /// Ranks on a host.
  int ranks_of_host() const { return std::min(mesh.ranks(), ranks_per_node); }
  /// Tokens of a step on all ranks.
  double tokens_per_step() const;
};

/// The run that `config` describes, in `precision`, on `ranks` ranks; 0: as many as the sizes of the mesh need. Layers
/// are divided into stages by what they cost on `device`. Throws Error, as fp8-step does, for settings that contradict
/// each other, the model or the ranks.
Run resolve(const Model& model, const settings::PlanConfig& config, const settings::PrecisionConfig& precision,
            std::int64_t ranks, device::DeviceType device);

/// The device that a plan is for, without its memory.
struct Target {
  device::DeviceType device = device::DeviceType::cuda;  ///< whose kernels and layouts count
  std::size_t gpu_memory = 0;                            ///< bytes of a GPU; 0: not known
};

/// Memory of a job.
struct JobMemory {
  int rank = 0;                     ///< that needs the most
  shard::MemoryPlan plan;           ///< its plan
  std::vector<std::size_t> stages;  ///< the most that a rank of each stage needs
};

/// The memory that fp8-step plans on the rank that needs the most, by the same dry run.
JobMemory memory_of(const Run& run, const Target& target);

}  // namespace fp8::plan
