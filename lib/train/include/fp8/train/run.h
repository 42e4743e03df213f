/// A training run from the first check to the last record, and an evaluation. Collective: every rank calls with the
/// same configuration.
#pragma once

#include <functional>
#include <string>

#include "fp8/base/error.h"
#include "fp8/comm/comm.h"
#include "fp8/train/config.h"

namespace fp8::train {

/// What a run tells and asks while it goes. Called on rank 0 alone, except begins and stop_requested.
struct Hooks {
  std::function<void(const json::Value&)> record;    ///< a record for standard output; it is in log.jsonl already
  std::function<void(const std::string&)> note;      ///< a line, or several, for people
  std::function<void(const std::string&)> warning;   ///< a line about what went wrong and did not end the run
  std::function<void(const std::string&)> progress;  ///< what is going on, for one changing line
  std::function<void()> begins;                      ///< on every rank, before anything is computed or written
  std::function<bool()> stop_requested;              ///< asked on every rank after each step
};

/// Trains (or plans, with dry_run). Returns done, or again when it was asked to stop. Throws the same Error on every
/// rank: bad for input, fp8_missing when FP8 was asked for and less ran than was planned, diverged after many skipped
/// steps in a row.
Exit run(const RunConfig& config, comm::Communicator& world, const Hooks& hooks);

/// An evaluation.
struct EvalConfig {
  std::string model, data;                   ///< paths
  std::int64_t seq_length = 0;               ///< T; 0: as in RunConfig
  std::int64_t batch_size = 8;               ///< sequences at a time on each rank
  PrecisionConfig precision;                 ///< what matmuls run in
  std::optional<device::DeviceType> device;  ///< --device; nothing: a GPU where every rank has one
  bool any_tokenizer = false;                ///< as in RunConfig
  bool per_token = false;                    ///< a record for every sequence
};

/// Loss of a checkpoint over all whole samples of a token file, in file order: with per_token {"type":"sequence"}
/// records, then {"type":"eval"}. Ranks share the work; records go to rank 0's hook.
void evaluate(const EvalConfig& config, comm::Communicator& world, const Hooks& hooks);

}  // namespace fp8::train
