// Memory of the rank that needs the most, which notes and records report for all. Private to the crate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/comm/mesh.h"
#include "fp8/json/value.h"
#include "fp8/shard/sharded_model.h"

namespace fp8::train {

// Ranks need different memory where units of tensors, experts or layers do not divide evenly, and their programs differ
// by some pages. A rank's need is its arena and the scratch of its GEMMs; the program is the largest of all ranks, so
// that the total of `plan` is the largest of `stages`.
struct JobMemory {
  int rank = 0;                      // rank that needs the most, the lowest of equals
  json::Value plan;                  // MemoryPlan::to_json() of that rank
  std::string table;                 // MemoryPlan::to_text() of that rank
  std::vector<std::int64_t> stages;  // bytes of the rank that needs the most in each stage
};

// Collective.
JobMemory memory_of_job(const comm::Mesh& mesh, const shard::MemoryPlan& mine);

// memory_used() of `rank` on every rank. Collective.
json::Value memory_used_on(comm::Communicator& all, int rank, const shard::ShardedModel& model);

}  // namespace fp8::train
