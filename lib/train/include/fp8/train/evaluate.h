/// Evaluation of a checkpoint: loss over a token file. Collective: every rank calls with the same configuration. The
/// evaluations during a run are part of the run (run.h).
#pragma once

#include <optional>
#include <string>

#include "fp8/train/run.h"

namespace fp8::train {

/// An evaluation.
struct EvalConfig {
  std::string model, data;                                       ///< paths
  std::int64_t seq_length = 0;                                   ///< T; 0: as in RunConfig
  std::int64_t batch_size = 8;                                   ///< sequences at a time on each rank
  data::DocumentMode documents = data::DocumentMode::automatic;  ///< whether samples cross documents
  PrecisionConfig precision;                                     ///< of GEMMs and activations
  std::optional<device::DeviceType> device;  ///< nothing: a GPU if every rank has one, otherwise the CPU
  bool any_tokenizer = false;                ///< as in RunConfig
  bool per_token = false;                    ///< a record for every sequence
};

/// Loss of a checkpoint over all whole sequences of a token file, in file order: with per_token {"type":"sequence"}
/// records, then {"type":"eval"}. Ranks share the work; records go to the hook of rank 0. Throws as run().
void evaluate(const EvalConfig& config, comm::Communicator& host_comm, const Hooks& hooks);

}  // namespace fp8::train
