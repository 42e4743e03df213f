/// The saves of a run: when one is due, writing in the caller's thread or in the background, commit when every rank has
/// written its file, retries after failures, and removal of older checkpoints. The format is in ckpt. Ranks agree on
/// everything here; only the caller's thread communicates with them.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "fp8/base/clock.h"
#include "fp8/base/lock.h"
#include "fp8/ckpt/find.h"
#include "fp8/state/journal.h"
#include "fp8/state/state.h"
#include "fp8/state/worker.h"

namespace fp8::state {

/// The name of a true value in the /train of a checkpoint that is removed when there are two newer ones like it.
inline constexpr const char* kRolling = "rolling";
/// Rolling checkpoints that are kept.
inline constexpr std::int64_t kNewestRolling = 2;

/// When to save and which checkpoints to keep.
struct SavePolicy {
  std::string run_folder{};                          ///< path
  std::int64_t every = 0, keep = 0, milestones = 0;  ///< 0: no
  bool keep_best = false;
  double seconds = 0;    ///< between two saves, by rank 0's clock; 0: no limit
  bool rolling = false;  ///< keep the newest two of the checkpoints with kRolling, and all others; without `keep`
  const LockedFolder* held = nullptr;  ///< the lock of the run's folder, which outlives the saves; null: not checked
};

/// The contents of one save.
struct SaveContent {
  std::int64_t step = 0;
  Documents documents;
  const shard::ParameterStore& store;          ///< outlives the save
  const std::vector<model::Parameter>& table;  ///< parameters with the precisions to record, which outlive the save
  std::optional<ckpt::Evaluation> evaluation;  ///< evaluation of this step
};

/// The phase of a save. Ranks change it together.
enum class SavePhase : std::uint8_t {
  idle,        ///< no save is in progress
  writing,     ///< every rank writes its file
  committing,  ///< rank 0 writes the manifest
  committed,   ///< older checkpoints are kept until the new weights are confirmed, see SaveState::confirmed
  pruning,     ///< rank 0 removes older checkpoints
};

/// The saves of a run. Functions below change it; equal on all ranks unless noted otherwise.
struct SaveState {
  /// `journal` outlives the state. The run is at `step`; rank 0 reads which checkpoints up to there are rolling and,
  /// with keep_best, their evaluations.
  SaveState(comm::Communicator& host_comm, Journal& journal, SavePolicy policy, std::int64_t step = 0);

  comm::Communicator& host_comm;
  Journal& journal;
  SavePolicy policy;
  std::map<std::int64_t, ckpt::Evaluation> evaluations;  ///< evaluations of committed checkpoints by step; rank 0's
  std::set<std::int64_t> rolling;                        ///< steps of the rolling checkpoints; rank 0's

  std::int64_t newest_step = 0;                   ///< newest step of the run
  std::int64_t retry_at = 0, retry_gap = 1;       ///< steps; retry_at 0: there is nothing to retry
  Clock::time_point last_save_at = Clock::now();  ///< start or end of the last save

  SavePhase phase = SavePhase::idle;
  bool async = false;                  ///< the save is written in the background
  bool confirmed = false;              ///< a later step had finite loss and gradient, so its weights are good
  std::optional<SaveContent> content;  ///< content of the save under way, or of the last one
  std::string folder;                  ///< temporary
  Clock::time_point begun;
  double waited = 0;  ///< seconds in which training waited for saves since the last record of a checkpoint
  std::optional<Clock::time_point> waiting_since;  ///< start of a wait that is not in `waited` yet

  std::string failure;    ///< why the last save failed; empty when it is committed or under way
  bool diverged = false;  ///< the save failed because of values that no checkpoint may hold
  std::string task;       ///< task of the worker, for the watchdog's message
  Worker worker;          ///< last, so that it ends before what it works on is destroyed
};

/// Whether a checkpoint is to be made at this step.
bool save_due(const SaveState& s, std::int64_t step);
/// Whether the time between two saves is over on this rank's clock.
bool save_interval_over(const SaveState& s);
/// Finishes the previous save and starts one. With a snapshot, which outlives the save, the state is copied to it
/// first. With a snapshot and `async`, the save is written in the background; otherwise it is committed when this
/// returns. A save that fails leaves earlier checkpoints as they are, is a warning, and is due again at the next step,
/// then after two, four and so on. If the folder of the run is not in place (SavePolicy::held), nothing is committed or
/// removed, and this and the next functions throw AgreedError. Collective.
void start_save(SaveState& s, SaveContent content, const Context& ctx, shard::Snapshot* snapshot, bool async = true);
/// At the end of step `step`: if no rank runs a task of the save, enters the next phase, for which the ranks
/// communicate; a synchronous save is finished. `finite`: the loss and the gradient of the step are finite, which
/// confirms the weights of an earlier save. Collective.
void advance_save(SaveState& s, std::int64_t step, bool any_rank_busy, bool finite);
/// Makes a save that is due at `step` due at the next one instead, because its weights are in doubt.
void postpone_save(SaveState& s, std::int64_t step);
/// Waits for the save under way and finishes it. Older checkpoints are removed only if it is confirmed, by a step or by
/// the caller. Collective.
void finish_save(SaveState& s, bool confirmed = false);

}  // namespace fp8::state
