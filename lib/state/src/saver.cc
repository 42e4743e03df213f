// Saving. The work of a single rank is a task of its Worker; ranks communicate between two tasks.
#include "fp8/state/saver.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fp8/base/clock.h"
#include "fp8/base/file.h"
#include "fp8/cli/command.h"
#include "fp8/json/json.h"
#include "fp8/state/space.h"

namespace fp8::state {
namespace {

// Training waits for a save while one exists. The outermost of nested ones counts.
class Wait {
 public:
  explicit Wait(SaveState& s) : state_(s), outermost_(!s.waiting_since) {
    if (outermost_) state_.waiting_since = Clock::now();
  }
  ~Wait() {
    if (!outermost_) return;
    count(state_);
    state_.waiting_since.reset();
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  // Adds the seconds of the wait under way to `waited`, up to now.
  static void count(SaveState& s) {
    if (!s.waiting_since) return;
    const Clock::time_point since = std::exchange(*s.waiting_since, Clock::now());
    s.waited += std::chrono::duration<double>(*s.waiting_since - since).count();
  }

 private:
  SaveState& state_;
  bool outermost_;
};

constexpr std::int64_t kLongestGap = 1024;  // steps between attempts to save

bool divides(std::int64_t every, std::int64_t step) { return every > 0 && step % every == 0; }

bool is_rolling(const json::Value& train) {
  const json::Value* r = train.is_object() ? train.as_object().find(kRolling) : nullptr;
  return r != nullptr && r->is_bool() && r->as_bool();
}

// Calls `found` with the step and the /train of each readable checkpoint of a run up to `step`.
void each_train(const std::string& run_folder, std::int64_t step,
                const std::function<void(std::int64_t, const json::Value&)>& found) {
  for (const ckpt::StepFolder& folder : ckpt::list_steps(run_folder)) {
    if (folder.step > step) continue;  // the checkpoint is of an earlier start that went further
    try {
      found(folder.step, ckpt::Checkpoint::open(folder.path).train());
    } catch (const Error&) {
      continue;  // damaged: not a candidate for the best, and not removed
    }
  }
}

std::vector<ckpt::FileEntry> entries_of(const std::vector<std::string>& texts) {
  std::vector<ckpt::FileEntry> entries;
  for (const std::string& t : texts)
    entries.push_back(ckpt::file_entry_from_json(json::parse(t, "a rank's file entry"), "a rank's file entry"));
  return entries;
}

std::string path_of(const SaveState& s, std::int64_t step) { return s.policy.run_folder + "/" + ckpt::step_name(step); }

bool waits_for_confirmation(const SaveState& s) { return s.phase == SavePhase::committed && !s.confirmed; }

// Starts a task of this rank. The watchdog ends the run when the task is waited for and finishes no piece.
void start_task(SaveState& s, std::string task, Worker::Work work) {
  s.task = std::move(task);
  const watchdog::WatchedWork watched(s.host_comm.progress(), s.task, s.worker.pieces());
  s.worker.start(s.async, std::move(work));
}

// Waits for the task.
std::string task_result(SaveState& s) {
  const watchdog::WatchedWork watched(s.host_comm.progress(), s.task, s.worker.pieces());
  return s.worker.result();
}

// Makes the temporary folder, on rank 0, if there is space for the files of all ranks.
void make_folder(SaveState& s) {
  const std::uint64_t bytes = checkpoint_bytes(s.host_comm, s.content->store);
  const std::string path = path_of(s, s.content->step);
  s.folder = path + ".tmp";
  comm::agree(s.host_comm, [&] {
    if (!comm::is_writer(s.host_comm)) return;
    const watchdog::WatchedWork watched(s.host_comm.progress(), "making " + s.folder, s.worker.pieces());
    ckpt::check_space(s.policy.run_folder, bytes);
    (void)ckpt::begin_folder(path, s.policy.held);
  });
  s.folder = s.host_comm.all_gather(s.folder)[0];
}

// The tensors that this rank writes. A scale before the calibration is none of the run, which calibrates when it goes
// on.
std::vector<shard::StateTensor> tensors_of(const shard::ParameterStore& store, const shard::Snapshot* snapshot) {
  std::vector<shard::StateTensor> tensors = snapshot != nullptr ? snapshot->tensors() : shard::state_tensors(store);
  std::erase_if(tensors, [&](const shard::StateTensor& t) {
    return t.scale_slot >= 0 && !t.history && !store.scales().has_scale(t.scale_slot);
  });
  return tensors;
}

// Every rank starts to write its file.
void enter_writing(SaveState& s, const Context& ctx, shard::Snapshot* snapshot) {
  if (snapshot != nullptr) snapshot->copy(ctx, s.content->store);
  comm::agree(s.host_comm, [&] {
    start_task(s, "writing " + s.folder,
               [tensors = tensors_of(s.content->store, snapshot), &content = *s.content,
                folder = s.folder](const PieceRunner& runner) {
                 const comm::Mesh& mesh = content.store.mesh();
                 return json::dump(ckpt::to_json(write_shard(tensors, content.table, content.documents, folder,
                                                             mesh.file_number(), mesh.file_count(), runner)));
               });
  });
  s.phase = SavePhase::writing;
}

// Waits until every rank has written its file; then rank 0 starts to make the files a checkpoint.
void enter_committing(SaveState& s) {
  std::string entry;
  comm::agree(s.host_comm, [&] { entry = task_result(s); });
  const std::vector<std::string> texts = s.host_comm.all_gather(entry);
  comm::agree(s.host_comm, [&] {
    if (!comm::is_writer(s.host_comm)) return;
    // The commit is one piece, which cannot be cancelled: it writes the manifest and renames the folder.
    start_task(s, "committing " + s.folder, [&s, entries = entries_of(texts)](const PieceRunner&) -> std::string {
      ckpt::commit_folder(s.folder, path_of(s, s.content->step), ckpt::FileKind::training, s.content->documents.mesh,
                          entries, s.policy.held);
      return "";
    });
  });
  s.phase = SavePhase::committing;
}

// Waits for the commit and records the checkpoint.
void enter_committed(SaveState& s) {
  s.last_save_at = Clock::now();
  comm::agree(s.host_comm, [&] { (void)task_result(s); });
  const std::int64_t step = s.content->step;
  if (s.content->evaluation) s.evaluations.insert_or_assign(step, *s.content->evaluation);
  s.retry_gap = 1;
  Wait::count(s);
  s.journal.emit(json::object({{"type", "checkpoint"},
                               {"step", step},
                               {"path", path_of(s, step)},
                               {"seconds", seconds_since(s.begun)},
                               {"wait_s", std::exchange(s.waited, 0)}}));
  s.phase = SavePhase::committed;
}

// Removes older checkpoints, now that the save is committed and confirmed. On rank 0.
void prune(SaveState& s, const PieceRunner& runner) {
  const std::int64_t step = s.content->step;
  std::map<std::int64_t, ckpt::Evaluation> evaluations = s.evaluations;
  if (s.content->evaluation) evaluations.insert_or_assign(step, *s.content->evaluation);
  const std::optional<std::int64_t> best = s.policy.keep_best ? ckpt::best_step(evaluations) : std::nullopt;
  const bool now = is_rolling(s.content->documents.train);
  if (now) s.rolling.insert(step);
  // The newest checkpoint counts as one of the two, even if it is not rolling.
  const std::int64_t keep = s.policy.rolling ? kNewestRolling - (now ? 0 : 1) : s.policy.keep;
  const auto stays = [&](std::int64_t other) {
    return other > step || other == best || divides(s.policy.milestones, other) ||
           (s.policy.rolling && !s.rolling.contains(other));
  };
  ckpt::prune(s.policy.run_folder, keep, stays, runner, s.policy.held);
}

// Rank 0 starts to remove older checkpoints.
void enter_pruning(SaveState& s) {
  comm::agree(s.host_comm, [&] {
    if (!comm::is_writer(s.host_comm)) return;
    start_task(s, "removing checkpoints of " + s.policy.run_folder, [&s](const PieceRunner& runner) -> std::string {
      prune(s, runner);
      return "";
    });
  });
  s.phase = SavePhase::pruning;
}

// Waits for the removal.
void enter_idle(SaveState& s) {
  comm::agree(s.host_comm, [&] { (void)task_result(s); });
  s.phase = SavePhase::idle;
}

// Throws AgreedError unless the folder of the run is in place, which may be why the save failed. Collective.
void agree_in_place(SaveState& s) {
  comm::agree(s.host_comm, [&] {
    if (comm::is_writer(s.host_comm) && s.policy.held != nullptr) s.policy.held->check();
  });
}

void save_failed(SaveState& s, const comm::AgreedError& error) {
  s.phase = SavePhase::idle;
  s.last_save_at = Clock::now();
  s.failure = error.what();
  s.diverged = error.code() == Exit::diverged;
  s.retry_at = s.newest_step + s.retry_gap;
  s.retry_gap = std::min(2 * s.retry_gap, kLongestGap);
  const auto ignoring_errors = [](const auto& body) {
    try {
      body();
    } catch (const Error&) {
      return;  // the first error is reported
    }
  };
  ignoring_errors([&] { (void)task_result(s); });  // this rank's task, when another rank's did not start
  agree_in_place(s);
  if (comm::is_writer(s.host_comm)) ignoring_errors([&] { remove_tree(s.folder); });
  if (s.diverged) return;  // the run ends with that reason
  s.journal.warn(s.newest_step, "step " + std::to_string(s.content->step) + " is not saved: " + s.failure);
}

// Waits for the task of this phase and enters the next one.
void next_phase(SaveState& s) {
  try {
    switch (s.phase) {
      case SavePhase::writing:
        return enter_committing(s);
      case SavePhase::committing:
        return enter_committed(s);
      case SavePhase::committed:
        return enter_pruning(s);
      case SavePhase::pruning:
        return enter_idle(s);
      case SavePhase::idle:
        return;
    }
  } catch (const comm::AgreedError& e) {
    if (s.phase == SavePhase::writing || s.phase == SavePhase::committing) return save_failed(s, e);
    s.phase = SavePhase::idle;
    agree_in_place(s);
    s.journal.warn(s.newest_step, cli::flag_name("keep") + ": " + e.what());
  }
}

}  // namespace

SaveState::SaveState(comm::Communicator& comm, Journal& records, SavePolicy when, std::int64_t step)
    : host_comm(comm), journal(records), policy(std::move(when)), newest_step(step) {
  if (!comm::is_writer(host_comm) || (!policy.keep_best && !policy.rolling)) return;
  each_train(policy.run_folder, step, [&](std::int64_t of, const json::Value& train) {
    if (const auto e = ckpt::evaluation_of(train)) evaluations.emplace(of, *e);
    if (is_rolling(train)) rolling.insert(of);
  });
}

bool save_due(const SaveState& s, std::int64_t step) {
  return divides(s.policy.every, step) || divides(s.policy.milestones, step) || (s.retry_at > 0 && step >= s.retry_at);
}

bool save_interval_over(const SaveState& s) {
  return s.policy.seconds > 0 && seconds_since(s.last_save_at) >= s.policy.seconds;
}

void start_save(SaveState& s, SaveContent content, const Context& ctx, shard::Snapshot* snapshot, bool async) {
  const Wait wait(s);
  finish_save(s, true);  // a save starts only after a finite step, which confirms the save before
  s.confirmed = false;
  s.newest_step = content.step;
  s.begun = Clock::now();
  s.failure.clear();
  s.diverged = false;
  s.retry_at = 0;
  s.async = async && snapshot != nullptr;
  s.content.emplace(std::move(content));
  try {
    make_folder(s);
    enter_writing(s, ctx, snapshot);
  } catch (const comm::AgreedError& e) {
    return save_failed(s, e);
  }
  if (!s.async) finish_save(s);
  s.last_save_at = Clock::now();
}

void advance_save(SaveState& s, std::int64_t step, bool any_rank_busy, bool finite) {
  s.newest_step = step;
  if (finite && s.content && step > s.content->step) s.confirmed = true;
  if (s.phase == SavePhase::idle || any_rank_busy || waits_for_confirmation(s)) return;
  const Wait wait(s);
  next_phase(s);
  if (!s.async) finish_save(s);
}

void postpone_save(SaveState& s, std::int64_t step) { s.retry_at = step + 1; }

void finish_save(SaveState& s, bool confirmed) {
  const Wait wait(s);
  if (confirmed) s.confirmed = true;
  while (s.phase != SavePhase::idle && !waits_for_confirmation(s)) next_phase(s);
}

}  // namespace fp8::state
