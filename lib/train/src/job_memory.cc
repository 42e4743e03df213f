// The plan and the use of memory of one rank, on all ranks.
#include "job_memory.h"

#include <algorithm>

#include "fp8/json/json.h"
#include "fp8/train/records.h"

namespace fp8::train {
namespace {

// The text of `rank`, on every rank. Collective.
std::string of_rank(comm::Communicator& all, int rank, const std::string& mine) {
  return all.all_gather(all.rank() == rank ? mine : "")[static_cast<std::size_t>(rank)];
}

json::Value of_rank(comm::Communicator& all, int rank, const json::Value& mine) {
  return json::parse(of_rank(all, rank, json::dump(mine)), "memory of rank " + std::to_string(rank));
}

}  // namespace

JobMemory memory_of_job(const comm::Mesh& mesh, const shard::MemoryPlan& mine) {
  comm::Communicator& all = mesh.all();
  const auto need = static_cast<std::int64_t>(mine.bytes + mine.scratch);
  std::int64_t program = static_cast<std::int64_t>(mine.program), most = need;
  for (std::int64_t* const value : {&program, &most})
    all.all_reduce(std::span<std::int64_t>(value, 1), comm::Reduce::max);
  std::int64_t not_before = need == most ? -all.rank() : -all.size();
  all.all_reduce(std::span<std::int64_t>(&not_before, 1), comm::Reduce::max);
  shard::MemoryPlan plan = mine;
  plan.program = static_cast<std::size_t>(program);
  const int rank = static_cast<int>(-not_before);
  JobMemory job{rank, of_rank(all, rank, plan.to_json()), of_rank(all, rank, plan.to_text()),
                std::vector<std::int64_t>(static_cast<std::size_t>(mesh.shape().pp))};
  job.stages[static_cast<std::size_t>(mesh.stages().rank())] = static_cast<std::int64_t>(plan.total());
  all.all_reduce(std::span<std::int64_t>(job.stages), comm::Reduce::max);
  return job;
}

json::Value memory_used_on(comm::Communicator& all, int rank, const shard::ShardedModel& model) {
  return of_rank(all, rank, memory_used(model));
}

}  // namespace fp8::train
