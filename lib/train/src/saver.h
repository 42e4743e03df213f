// Checkpoints of a run while it goes on: when one is due, written before the steps' eyes or beside them, committed when
// every rank has its part, tried again when that failed, and which older ones may go. The format is ckpt's. Private to
// the crate. Ranks agree on everything here; only the caller's thread talks to them.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "records.h"
#include "state.h"

namespace fp8::train {

// One piece of work at a time, on a thread of its own or before the caller's eyes. All members are the caller's to
// call, from one thread.
class Worker {
 public:
  // Work returns a text, or throws Error. It ends early, by any error, once `cancelled` is set.
  using Work = std::function<std::string(const std::atomic<bool>& cancelled)>;
  Worker() = default;
  // Cancels what is under way and waits for it to end.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Begins `work`; what was begun before must have been fetched by result(). Throws Error when there is no thread.
  void start(bool beside, Work work);
  // Whether work is under way: result() would wait.
  bool busy() const { return thread_.joinable() && !ended_.load(); }
  // Waits for the end; the text, or throws the error. Without work begun: "".
  std::string result();

 private:
  void run(const Work& work);
  std::thread thread_;
  std::atomic<bool> cancelled_ = false, ended_ = false;
  std::string text_;
  std::optional<Error> error_;
};

// A copy of all that a rank owns, in host memory of its own, "snapshot" in the plan: a save is written from it while
// steps change the originals, and whatever a device owns is written from it.
class Snapshot {
 public:
  // Takes the memory from the context's arena, where that is on the host.
  Snapshot(const Context& ctx, const ParameterStore& store);
  // Copies masters and moments.
  void copy(const Context& ctx, const ParameterStore& store);
  const std::vector<ParameterShard>& shards() const { return shards_; }

 private:
  std::vector<device::Buffer> memory_;  // of a device's
  std::vector<ParameterShard> shards_;
};

// The loss of an evaluation at a checkpoint's step, as its /train keeps it; comparable where data and targets are
// equal.
struct SavedEvaluation {
  double loss = 0;
  std::int64_t targets = 0;
  std::string data;  // digest
};
json::Value to_json(const SavedEvaluation& e);

// The name of a true value in the /train of a checkpoint that was made by default and goes when two newer ones are
// there.
inline constexpr const char* kRolling = "rolling";

// When to save and what to keep.
struct SavePolicy {
  std::string run;                                   // folder
  std::int64_t every = 0, keep = 0, milestones = 0;  // 0: no
  bool keep_best = false;
  double seconds = 0;    // between two saves, by rank 0's clock; 0: no
  bool rolling = false;  // of checkpoints that say so, the newest two stay; without keep
};

// What one save holds.
struct SaveContent {
  std::int64_t step = 0;
  Documents documents;
  const ParameterStore& store;                 // outlives the save
  const std::vector<model::Parameter>& table;  // likewise; with the precisions to record
  std::optional<SavedEvaluation> evaluation;   // of this step
};

// See the top of this file. A save that fails leaves the earlier checkpoints as they are: it is a warning, and due
// again at the next step, then after two, four and so on.
class Saver {
 public:
  // `journal` outlives the saver. The run stands at `step`; with `keep_best`, rank 0 reads the evaluations that its
  // checkpoints up to there carry.
  Saver(comm::Communicator& world, Journal& journal, SavePolicy policy, std::int64_t step = 0);

  // Whether a checkpoint is to be made at this step. Equal on all ranks.
  bool due(std::int64_t step) const;
  // Whether the time between two saves is over on this rank's clock.
  bool time_over() const;
  // Finishes the save before, then saves. With a snapshot, which outlives the save, it copies first, and with `beside`
  // only begins to write then. Collective.
  void save(SaveContent content, const Context& ctx, Snapshot* snapshot, bool beside = true);
  // 1 while this rank's part of a save is under way, else 0: for the reduction at the end of a step.
  std::int64_t busy() const { return worker_.busy() ? 1 : 0; }
  // At the end of a step: goes on with a save that no rank is busy with any more, without waiting. With `finite`, the
  // step's loss and gradient prove the weights of a save before it, and older checkpoints may go. Collective; all is
  // equal on all ranks.
  void advance(std::int64_t step, bool anyone_busy, bool finite);
  // A save that is due at this step is due at the next instead: its weights are in doubt.
  void put_off(std::int64_t step) { retry_at_ = step + 1; }
  // Waits for the save under way and finishes it; older checkpoints stay where it is not proven. Collective.
  void settle();
  // The same at the end of a run, which no step follows: older checkpoints go. Collective.
  void conclude();
  // Why the last save failed; empty when it is committed, or under way. Equal on all ranks.
  const std::string& failure() const { return failure_; }
  // Whether it failed because it holds values that no checkpoint may hold: the run has diverged. Equal on all ranks.
  bool diverged() const { return diverged_; }

 private:
  enum class Phase : std::uint8_t { idle, writing, committing, unproven, pruning };
  void begin();
  void write(const Context& ctx, Snapshot* snapshot);
  bool waits_for_proof() const { return phase_ == Phase::unproven && !proven_; }
  void go_on();
  void commit();
  void committed();
  void start_pruning();
  void prune();
  void failed(const comm::AgreedError& error);

  comm::Communicator& world_;
  Journal& journal_;
  SavePolicy policy_;
  std::map<std::int64_t, SavedEvaluation> evaluated_;  // of committed checkpoints; rank 0's
  std::set<std::int64_t> rolling_;                     // likewise: those that say so
  std::string failure_;
  std::int64_t now_ = 0;                       // newest step heard of
  std::int64_t retry_at_ = 0, retry_gap_ = 1;  // steps; retry_at_ 0: nothing to try again
  Phase phase_ = Phase::idle;
  bool beside_ = false, proven_ = false, diverged_ = false;
  std::optional<SaveContent> content_;
  std::string folder_;  // the unfinished one
  std::chrono::steady_clock::time_point begun_;
  std::chrono::steady_clock::time_point rested_ =
      std::chrono::steady_clock::now();  // since when no save was begun or ended
  double waited_ = 0;                    // seconds of this save in which no step ran
  Worker worker_;                        // last, so that it ends before what it works on goes
};

}  // namespace fp8::train
