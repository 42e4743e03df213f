/// Which meshes fit a model and a number of ranks, and messages that name the nearest ones that do.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fp8/comm/mesh.h"
#include "fp8/hf/config.h"
#include "fp8/model/parameters.h"
#include "fp8/settings/config.h"
#include "fp8/shard/sharded_model.h"

namespace fp8::settings {

/// A model as the ranks of --tp divide it. References outlive it.
struct TensorDivision {
  const PrecisionConfig& precision;            ///< precisions of the parameters
  std::int64_t rows = 0;                       ///< tokens of the smallest pass
  const hf::ModelConfig& model;                ///< unsplit
  const std::vector<model::Parameter>& table;  ///< unsplit
  bool statistics = false;                     ///< whether there are statistics of tensors

  /// Why `tp` ranks cannot divide the model and its passes, as the end of a message; empty if they can.
  std::string refusal(std::int64_t tp) const;
};

/// The division of a run.
TensorDivision division_of(const RunConfig& config, const hf::ModelConfig& model,
                           const std::vector<model::Parameter>& table);

/// What the model of a mesh allows.
struct MeshLimits {
  std::string model;                                   ///< path of the model, for messages
  std::int64_t layers = 1;                             ///< the most stages
  std::int64_t experts = 0;                            ///< the most parts of the experts; 0: no layer has any
  std::function<std::string(std::int64_t tp)> tensor;  ///< see TensorDivision::refusal()
};

/// The limits of a model. `tensor` as in MeshLimits.
MeshLimits mesh_limits(const std::string& path, const hf::ModelConfig& model,
                       std::function<std::string(std::int64_t tp)> tensor);

/// The mesh of `ranks` ranks that the flags describe. Throws Error if the model or the number of ranks does not allow
/// it. The message names the nearest values of the flag, or the nearest numbers of ranks, with which everything fits;
/// if there are none, the nearest mesh of the same ranks. It suggests a command that starts `tool` if there is only one
/// rank.
comm::MeshShape fitting_mesh(const Config& config, std::int64_t ranks, const MeshLimits& limits,
                             const std::string& tool);

/// The mesh of `ranks` ranks that the flags of a run describe, for the model at `path` whose sizes and parameters are
/// those of `spec`. Throws Error as fitting_mesh() does.
comm::MeshShape mesh_of_run(const RunConfig& config, const std::string& path, const shard::ModelSpec& spec,
                            std::int64_t ranks, const std::string& tool);

}  // namespace fp8::settings
