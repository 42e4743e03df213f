/// The checkpoints of one run: `run/step-%08d/`. Which there are, which is the newest that is whole, which may go.
/// Folders that end in
/// `.tmp` are unfinished and never read. Nothing here writes a checkpoint.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp8/ckpt/tensor_meta.h"
#include "fp8/json/value.h"

namespace fp8::ckpt {

class Checkpoint;

/// A checkpoint in a run's folder.
struct StepFolder {
  std::int64_t step = 0;  ///< updates completed
  std::string path;       ///< run folder, slash, name

  /// Equal in both.
  bool operator==(const StepFolder&) const = default;
};

/// Where a run stood when it was saved, as /train says.
struct Counters {
  std::int64_t step = 0;     ///< batches seen, from 0
  std::int64_t updates = 0;  ///< updates applied: steps that were not skipped, at most `step`
  std::int64_t tokens = 0;   ///< tokens seen, as many in every step
};

/// The counters of a checkpoint; a sampler's position follows from them. Throws Error `path: /train: reason` where one
/// is missing, not an integer, out of its range, or contradicts the others.
Counters counters_of(const Checkpoint& checkpoint);

/// `step-%08d`.
std::string step_name(std::int64_t step);
/// The step of such a name; nothing for any other name.
std::optional<std::int64_t> parse_step_name(std::string_view name);
/// Checkpoints of `run`, newest first; empty when the folder does not exist. They are not looked into.
std::vector<StepFolder> list_steps(const std::string& run);
/// Opens a checkpoint of a run. Throws Error where its counters are not right or not of the step in its name; its
/// weights are not read.
Checkpoint open_step(const StepFolder& folder);
/// The newest checkpoint of `run` that open_step() and verify() accept. Damaged ones before it are given to `report`
/// with the reason; it may be empty.
std::optional<StepFolder> newest_valid(
    const std::string& run, const std::function<void(const StepFolder&, const std::string& reason)>& report = {});
/// What users are told of a damaged one that is passed over.
std::string passed_over(const std::string& path, const std::string& reason);
/// What users are told where each of a run's is.
std::string all_damaged(const std::string& run);
/// Removes the oldest checkpoints of `run` until `keep` are left, sparing those that `is_protected` (may be empty) says
/// yes to, which do not count. Call it after a commit. keep < 1 removes nothing. Returns what was removed. A removal
/// starts with a rename to `.tmp`, so a kill never leaves half a checkpoint under its name.
std::vector<std::string> prune(const std::string& run, std::int64_t keep,
                               const std::function<bool(std::int64_t step)>& is_protected = {});
/// Removes unfinished `step-*.tmp` of `run`; returns what was removed.
std::vector<std::string> cleanup_tmp(const std::string& run);

/// `provenance` (an array, or null) with one more entry {"tool", "version", "command"}.
json::Value append_provenance(const json::Value& provenance, const std::string& tool, const std::string& version,
                              const std::string& command);

}  // namespace fp8::ckpt
