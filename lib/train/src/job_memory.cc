// The plan and the use of memory of one rank, on all ranks.
#include "job_memory.h"

#include <algorithm>

#include "fp8/json/json.h"
#include "fp8/train/records.h"

namespace fp8::train {
namespace {

// The value of `rank`, on every rank. Collective.
json::Value of_rank(comm::Communicator& all, int rank, const json::Value& mine) {
  const std::vector<std::string> texts = all.all_gather(all.rank() == rank ? json::dump(mine) : "");
  return json::parse(texts[static_cast<std::size_t>(rank)], "memory of rank " + std::to_string(rank));
}

// The plan with the bytes of a record. What the record lacks is that of `mine`, which is equal on all ranks.
shard::MemoryPlan with_bytes_of(const json::Value& record, shard::MemoryPlan mine) {
  const auto bytes = [](const json::Value& v) { return static_cast<std::size_t>(v.as_int()); };
  mine.usage.clear();
  for (const auto& [category, value] : record.as_object()) {
    if (category == "matmul scratch")
      mine.scratch = bytes(value);
    else if (category == "program")
      mine.program = bytes(value);
    else if (category != "total")
      mine.usage.push_back({category, bytes(value)});
  }
  mine.bytes = bytes(record.as_object().at("total")) - mine.scratch - mine.program;
  return mine;
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
  JobMemory job{
      static_cast<int>(-not_before), {}, std::vector<std::int64_t>(static_cast<std::size_t>(mesh.shape().pp))};
  job.stages[static_cast<std::size_t>(mesh.stages().rank())] = static_cast<std::int64_t>(plan.total());
  all.all_reduce(std::span<std::int64_t>(job.stages), comm::Reduce::max);
  job.plan = with_bytes_of(of_rank(all, job.rank, plan.to_json()), mine);
  return job;
}

json::Value memory_used_on(comm::Communicator& all, int rank, const shard::ShardedModel& model) {
  return of_rank(all, rank, memory_used(model));
}

}  // namespace fp8::train
