// What a run says about its stages. Private to the crate.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fp8/comm/mesh.h"
#include "fp8/train/step.h"
#include "profile.h"

namespace fp8::train {

// "stages: 9, 8, 8, 7 layers, 1.2 GiB, ... on each rank"; empty with one stage.
std::string note_of_stages(std::span<const int> layers, std::span<const std::int64_t> memory);

// "rank 3 (node-2), stage 1", without a machine if there is one, and without a stage if there is one; empty without
// both.
std::string name_of_rank(const comm::Mesh& mesh);

// A table of the times of a step on each stage, as means over its ranks; empty with one stage. Collective.
std::string table_of_stages(const comm::Mesh& mesh, const StepTimes& mine);

// Adds the stages to the record of a run, and the bubble to that of a step, with several stages.
void add_stages(std::span<const int> layers, std::span<const std::int64_t> memory, json::Value& run_record);
void add_bubble(const StepResult& r, double expected, json::Value& step_record);

}  // namespace fp8::train
