/// Disk space for the checkpoints of a run, checked before its first step. Quotas are not known: only what the file
/// system states counts.
#pragma once

#include <cstdint>
#include <string>

#include "fp8/comm/comm.h"
#include "fp8/shard/store.h"
#include "fp8/state/saver.h"

namespace fp8::state {

/// Upper bound of the bytes of a checkpoint: the files of all ranks. The store may be dry. Collective.
std::uint64_t checkpoint_bytes(comm::Communicator& host_comm, const shard::ParameterStore& store);

/// The largest number of checkpoints that a run from step `begin` to `end` adds to a folder with `existing` ones, at
/// least 1: its saves, less those that the policy has removed by then. Saves by time do not count.
std::int64_t most_added(const SavePolicy& policy, std::int64_t existing, std::int64_t begin, std::int64_t end);

/// What the file system of a run's folder, which need not exist yet, has for `count` checkpoints of `bytes` each.
struct SpaceForCheckpoints {
  std::string path;         ///< folder of the run
  std::uint64_t bytes = 0;  ///< bytes of a checkpoint
  std::uint64_t free = 0;   ///< free bytes
  std::int64_t count = 1;   ///< checkpoints

  /// The reason why no checkpoint can be saved, with the sizes and what to do; empty if there is room for one.
  std::string refusal() const;
  /// A warning that there is room for one and not for all; empty if there is.
  std::string warning() const;
  /// "a checkpoint takes 1.3 MiB; run has 2 GiB free".
  std::string text() const;
};

/// The space for the checkpoints of a run. Throws Error if the file system does not answer.
SpaceForCheckpoints space_for(const SavePolicy& policy, std::uint64_t bytes, std::int64_t begin, std::int64_t end);

}  // namespace fp8::state
