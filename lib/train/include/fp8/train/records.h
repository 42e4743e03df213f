/// The records of a run (fp8-log(5)).
#pragma once

#include <string>

#include "fp8/train/device_setup.h"
#include "fp8/train/step.h"

namespace fp8::train {

struct SampledText;

/// Whether FP8 is emulated: on the host, and on a GPU on request or by the recipe; otherwise a GPU without FP8 is an
/// error. False without FP8.
bool emulated(const settings::PrecisionConfig& precision, device::DeviceType device);

/// The process mesh of `ranks` that share all parameters: {"dp_replicate","dp_shard","pp","ep","tp"}.
json::Value mesh_record(const comm::MeshShape& shape);

/// {"type":"step"}.
json::Value step_record(const settings::RunConfig& config, device::DeviceType device, const StepResult& r,
                        const Position& after, std::int64_t tokens_per_step, double flops_per_token,
                        std::int64_t memory_peak_bytes);

/// {"type":"experts"} of each layer with experts: the rows of each of them in a step.
std::vector<json::Value> expert_records(const shard::RoutingResult& routing, hf::Family family);

/// {"type":"eval"}; with `step` -1 that of an evaluation outside of a run, which has no run record to name the
/// attention.
json::Value eval_record(std::int64_t step, const LossSum& sum, const settings::PrecisionConfig& precision,
                        device::DeviceType device);

/// {"type":"sample"}.
json::Value sample_record(std::int64_t step, const std::string& prompt, const SampledText& text, double seconds);

/// The line that says that FP8, FP4 or both are emulated; empty if neither is.
std::string note_of_emulation(const settings::PrecisionConfig& precision, device::DeviceType device);

/// A table of the linears by precision (fp4 under recipe nvfp4), in a run of `precision`, and reason or fusion, with a
/// tied LM head.
std::string precision_table(const hf::ModelConfig& model, const std::vector<model::Parameter>& table,
                            const settings::PrecisionConfig& precision);

/// Peak memory of this rank so far, in bytes: on the host, the largest resident set of the process; on a GPU, its
/// memory for the arena at its peak and for the scratch of GEMMs.
std::int64_t peak_memory(const shard::ShardedModel& model);

/// Bytes that this rank has used of what its shard::MemoryPlan planned, by category at the peak of the arena, and their
/// total; without "program".
json::Value memory_used(const shard::ShardedModel& model);

}  // namespace fp8::train
