/// The operations of a step, from a dry run of the step itself: a plan of its time. Not the time (who has the rates of
/// a machine) and not the memory (shard::plan_memory).
#pragma once

#include <vector>

#include "fp8/device/profile.h"
#include "fp8/optim/adamw.h"
#include "fp8/shard/sharded_model.h"

namespace fp8::train {

/// The step to plan, besides its model.
struct PlannedStep {
  shard::BatchShape trained;    ///< a micro-batch of this rank
  int micro_batches = 1;        ///< how many run; ModelSpec::micro_batches of a step, or fewer in the same order
  optim::Settings optimizer{};  ///< of the update
  double clip = 1;              ///< largest norm of the gradient
  double aux_loss = 0;          ///< StepEnvironment::aux_loss
  double z_loss = 0;            ///< StepEnvironment::z_loss
  int compute_capability = 0;   ///< device::Profile::compute_capability
  double imbalance = 1;         ///< device::Profile::imbalance
};

/// The spans of one step on this rank, in the order in which the rank runs it: forward and backward of the
/// micro-batches with marks, exchanges as starts and waits, and the update, by the code of run_step(). Reading the
/// batch, numbers for the record and the calibration of a first step are left out. Delayed scales are known; experts
/// get equal numbers of rows, in groups of PlannedStep::imbalance; with document bounds attention has the FLOPs of
/// joined sequences. `at` is the device; with DeviceType::cuda neither a GPU nor a build with CUDA is needed, and cuDNN
/// and cuBLASLt are assumed to be the newest. The groups of `mesh` are asked for their sizes and ranks only. Throws
/// Error naming a GEMM or an attention that the libraries of the device do not offer. Not collective.
std::vector<device::Span> plan_step(const device::Context& at, const comm::Mesh& mesh, const shard::ModelSpec& spec,
                                    const PlannedStep& step);

}  // namespace fp8::train
