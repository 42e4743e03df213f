// The log-probabilities that a model gives the tokens of rollouts, by the forward passes of fp8-eval. Private to the
// crate.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "batches.h"
#include "fp8/ckpt/checkpoint.h"
#include "fp8/judge/judge.h"
#include "fp8/train/model_setup.h"

namespace fp8::judge {

// A way to compute.
struct CandidateSpec {
  const ckpt::Checkpoint* checkpoint = nullptr;
  bool other_checkpoint = false;
  settings::PrecisionConfig precision;
  std::string recipe{};  // name with /server; empty without FP8
  train::ModelSetup setup{};

  // The recipe, or the precision without one.
  std::string name() const { return recipe.empty() ? std::string(settings::name_of(precision.precision)) : recipe; }
};

// What a model gives the tokens of one rollout.
struct Scored {
  std::vector<float> logprobs;   // of ids 1, 2, ... at the stated temperature
  std::vector<TokenGrid> grids;  // of the judged tokens, if they were requested
};

// Called with each rollout in order, with its number.
using EachRollout = std::function<void(std::int64_t number, const Rollout& rollout, const Scored& scored)>;

// How rollouts are computed.
struct ScorePlan {
  std::int64_t longest = 0;      // most ids of a rollout
  std::int64_t batch_size = 1;   // rollouts of a batch
  std::int64_t sequences = 0;    // rollouts in all, for progress
  std::int64_t grid_tokens = 0;  // judged tokens of which grids are computed, in whole rollouts
};

// Computes all batches of `reader`, which reads the same on all ranks. The ranks compute a batch each, and all of them
// pass the results of all to `each`, in the order of the rollouts. Delayed scales without a history are calibrated on
// the first batch. Throws AgreedError. Collective.
void score(const CandidateSpec& spec, const JudgeConfig& config, const ScorePlan& plan, comm::Communicator& host_comm,
           state::Journal& journal, BatchReader reader, const EachRollout& each);

}  // namespace fp8::judge
