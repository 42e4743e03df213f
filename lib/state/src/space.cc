// The number and the size of a run's checkpoints, and the free space of its file system.
#include "fp8/state/space.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"

namespace fp8::state {
namespace {

// Multiples of `every` in (begin, end]; none of 0.
std::int64_t multiples(std::int64_t every, std::int64_t begin, std::int64_t end) {
  return every > 0 ? end / every - begin / every : 0;
}

// The folder, or the nearest folder above it that exists.
std::string existing(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::path at = std::filesystem::absolute(folder, ignored);
  while (!std::filesystem::exists(at, ignored) && at.has_relative_path()) at = at.parent_path();
  return at.string();
}

}  // namespace

std::uint64_t checkpoint_bytes(comm::Communicator& host_comm, const shard::ParameterStore& store) {
  auto bytes = static_cast<std::int64_t>(shard_bytes(shard::state_tensors(store)));
  host_comm.all_reduce(std::span<std::int64_t>(&bytes, 1), comm::Reduce::sum);
  return static_cast<std::uint64_t>(bytes);
}

std::int64_t most_added(const SavePolicy& policy, std::int64_t existing, std::int64_t begin, std::int64_t end) {
  const std::int64_t milestones = multiples(policy.milestones, begin, end);
  std::int64_t saves = multiples(policy.every, begin, end) + milestones;
  if (policy.every > 0 && policy.milestones > 0)
    saves -= multiples(std::lcm(policy.every, policy.milestones), begin, end);
  const auto last = [&](std::int64_t every) { return every > 0 && end % every == 0; };
  if (!last(policy.every) && !last(policy.milestones)) ++saves;
  const std::int64_t keep = policy.rolling ? kNewestRolling : policy.keep;
  if (keep == 0) return saves;
  const std::int64_t kept = keep + 1 - existing + milestones + (policy.keep_best ? 1 : 0);
  return std::clamp<std::int64_t>(kept, 1, saves);
}

std::string SpaceForCheckpoints::refusal() const {
  if (bytes <= free) return {};
  return path + ": a checkpoint needs " + human_bytes(bytes) + ", and " + human_bytes(free) +
         " are free: free some space, or use another " + cli::flag_name("out");
}

std::string SpaceForCheckpoints::warning() const {
  const auto room = static_cast<std::int64_t>(free / std::max<std::uint64_t>(bytes, 1));
  if (room == 0 || room >= count) return {};
  return path + ": up to " + std::to_string(count) + " new checkpoints of " + human_bytes(bytes) + ", and " +
         human_bytes(free) + " are free: a save without room fails and is tried again at later steps; " +
         cli::flag_name("keep") + " 1 needs room for two checkpoints";
}

std::string SpaceForCheckpoints::text() const {
  return "a checkpoint takes " + human_bytes(bytes) + "; " + path + " has " +
         (free == kUnknownSpace ? "an unknown amount" : human_bytes(free)) + " free";
}

SpaceForCheckpoints space_for(const SavePolicy& policy, std::uint64_t bytes, std::int64_t begin, std::int64_t end) {
  const auto steps = static_cast<std::int64_t>(ckpt::list_steps(policy.run_folder).size());
  return {policy.run_folder, bytes, free_space(existing(policy.run_folder)), most_added(policy, steps, begin, end)};
}

}  // namespace fp8::state
