/// The checkpoints of one run, `run/step-%08d/`: list, open, prune. Folders that end in `.tmp` are unfinished and never
/// read. Finding the newest valid or the best one is in find.h, writing in writer.h.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp8/base/file.h"
#include "fp8/base/lock.h"
#include "fp8/ckpt/tensor_meta.h"
#include "fp8/json/value.h"

namespace fp8::ckpt {

class Checkpoint;

/// A checkpoint in a run's folder.
struct StepFolder {
  std::int64_t step = 0;  ///< updates completed
  std::string path;       ///< run folder, slash, name

  /// Equal step and path.
  bool operator==(const StepFolder&) const = default;
};

/// Where the batch or the data of a run last changed. Zeros: nowhere.
struct PositionBase {
  std::int64_t step = 0;    ///< steps before the change
  std::int64_t tokens = 0;  ///< tokens before the change
  std::int64_t sample = 0;  ///< position in the sequence of samples after it, from 0

  /// Memberwise.
  bool operator==(const PositionBase&) const = default;
};

/// Position of a run when it was saved, from /train.
struct Position {
  std::int64_t step = 0;     ///< batches seen, from 0
  std::int64_t updates = 0;  ///< updates applied: steps that were not skipped, at most `step`
  std::int64_t tokens = 0;   ///< tokens seen, the same number in every step after the base
  PositionBase base{};       ///< /train member "base"; zeros without it
};

/// The counters of a checkpoint, from which a sampler's position follows. Throws Error `path: /train: reason` if one is
/// missing, not an integer, out of range, or inconsistent with the others.
Position position_of(const Checkpoint& checkpoint);

/// `step-%08d`.
std::string step_name(std::int64_t step);
/// The step of such a name; nothing for any other name.
std::optional<std::int64_t> parse_step_name(std::string_view name);
/// Checkpoints of `run`, newest first; empty if the folder does not exist. The checkpoints are not opened.
std::vector<StepFolder> list_steps(const std::string& run);
/// Opens a checkpoint of a run. Throws Error if its counters are invalid or do not match the step in its name; its
/// weights are not read.
Checkpoint open_step(const StepFolder& folder);
/// Error for a run whose checkpoints are all damaged, the newest for `reason`.
std::string all_damaged(const std::string& run, const std::string& reason);
/// Removes the oldest checkpoints of `run` until `keep` are left, except those for which `is_protected` (may be empty)
/// returns true, which do not count. Call it after a commit. keep < 1 removes nothing. Returns the removed paths. A
/// removal starts with a rename to `.tmp`, so a kill never leaves a partial checkpoint under its name. Each file is a
/// piece of `runner`. `held` (may be null), the lock of the folder, is checked for each checkpoint.
std::vector<std::string> prune(const std::string& run, std::int64_t keep,
                               const std::function<bool(std::int64_t step)>& is_protected = {},
                               const PieceRunner& runner = {}, const LockedFolder* held = nullptr);
/// Removes unfinished `step-*.tmp` of `run`; returns the removed paths.
std::vector<std::string> cleanup_tmp(const std::string& run);

/// `provenance` (an array, or null) with one more entry {"tool", "version", "command"}.
json::Value append_provenance(const json::Value& provenance, const std::string& tool, const std::string& version,
                              const std::string& command);

}  // namespace fp8::ckpt
