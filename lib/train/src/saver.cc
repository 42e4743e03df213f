// Saving: what every rank does by itself is a Worker's task, what they must agree on happens between two tasks.
#include "saver.h"

#include <sched.h>

#include <algorithm>
#include <cmath>

#include "fp8/base/file.h"
#include "fp8/json/json.h"
#include "fp8/ops/norm.h"

namespace fp8::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Adds the time until its end.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += seconds_since(start_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& sum_;
  Clock::time_point start_ = Clock::now();
};

// This thread gets what the others leave, and about a three hundredth of a core that they do not, and goes at once when
// one of them wakes. A step is as fast as its slowest thread, and would share a core evenly otherwise; that a save
// takes longer costs nothing but time. A hint; on Linux a policy is a thread's own.
void give_way() {
  const sched_param none{};
  (void)::sched_setscheduler(0, SCHED_IDLE, &none);
}

constexpr std::int64_t kLongestGap = 1024;  // steps between attempts
constexpr std::int64_t kNewestRolling = 2;

bool divides(std::int64_t every, std::int64_t step) { return every > 0 && step % every == 0; }

std::optional<SavedEvaluation> evaluation_of(const json::Value& train) {
  const json::Value* e = train.is_object() ? train.as_object().find("evaluation") : nullptr;
  if (e == nullptr || !e->is_object()) return std::nullopt;
  const json::Object& o = e->as_object();
  return SavedEvaluation{o.get_double("loss", "evaluation"), o.get_int("targets", "evaluation"),
                         o.get_string("data", "evaluation")};
}

bool is_rolling(const json::Value& train) {
  const json::Value* r = train.is_object() ? train.as_object().find(kRolling) : nullptr;
  return r != nullptr && r->is_bool() && r->as_bool();
}

// Calls `found` with the step and the /train of each checkpoint of a run up to `step`; one that cannot be read is left
// out.
void each_train(const std::string& run, std::int64_t step,
                const std::function<void(std::int64_t, const json::Value&)>& found) {
  for (const ckpt::StepFolder& folder : ckpt::list_steps(run)) {
    if (folder.step > step) continue;  // from before the run went back
    try {
      found(folder.step, ckpt::Checkpoint::open(folder.path).train());
    } catch (const Error&) {
      continue;  // damaged: neither the best one nor one to remove
    }
  }
}

// The step of the lowest loss among those that can be compared with `like`, the earliest of equals; -1: none.
std::int64_t best_of(const std::map<std::int64_t, SavedEvaluation>& evaluated, const SavedEvaluation& like) {
  std::int64_t best = -1;
  double lowest = 0;
  for (const auto& [step, e] : evaluated) {
    const bool comparable = e.data == like.data && e.targets == like.targets && std::isfinite(e.loss);
    if (comparable && (best < 0 || e.loss < lowest)) best = step, lowest = e.loss;
  }
  return best;
}

std::vector<ckpt::FileEntry> entries_of(const std::vector<std::string>& texts) {
  std::vector<ckpt::FileEntry> entries;
  for (const std::string& t : texts)
    entries.push_back(ckpt::file_entry_from_json(json::parse(t, "a rank's file entry"), "a rank's file entry"));
  return entries;
}

}  // namespace

Worker::~Worker() {
  cancelled_ = true;
  if (thread_.joinable()) thread_.join();
}

void Worker::run(const Work& work) {
  try {
    text_ = work(cancelled_);
  } catch (const Error& e) {
    error_ = e;
  } catch (const std::bad_alloc&) {
    error_ = Error("out of memory");
  } catch (const std::exception& e) {
    error_ = Error(e.what());
  }
  ended_ = true;
}

void Worker::start(bool beside, Work work) {
  ended_ = false;
  if (!beside) return run(work);
  try {
    thread_ = std::thread([this, task = std::move(work)] {
      give_way();
      run(task);
    });
  } catch (const std::system_error& e) {
    throw Error(std::string("no thread for --async-save: ") + e.code().message());
  }
}

std::string Worker::result() {
  if (thread_.joinable()) thread_.join();
  const std::optional<Error> error = std::exchange(error_, std::nullopt);
  std::string text = std::exchange(text_, {});
  if (error) throw Error(*error);
  return text;
}

Snapshot::Snapshot(const Context& ctx, const ParameterStore& store) : shards_(store.shards()) {
  const auto copy_of = [&](const View& v) {
    View copy = v;
    copy.device = device::DeviceType::host;
    if (v.empty()) return copy;
    if (ctx.device == device::DeviceType::host) {
      copy.data = ctx.arena->allocate(v.bytes(), "snapshot");
    } else {
      memory_.emplace_back(v.bytes(), device::DeviceType::host, "the copy of a checkpoint");
      copy.data = memory_.back().data();
    }
    return copy;
  };
  for (ParameterShard& o : shards_) o.master = copy_of(o.master), o.m = copy_of(o.m), o.v = copy_of(o.v);
}

void Snapshot::copy(const Context& ctx, const ParameterStore& store) {
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const ParameterShard& from = store.shards()[i];
    if (from.rows.count() == 0) continue;
    const auto copy = ctx.device == device::DeviceType::host ? ops::copy : tensor::copy_across;
    copy(ctx, from.master, shards_[i].master);
    copy(ctx, from.m, shards_[i].m);
    copy(ctx, from.v, shards_[i].v);
  }
}

json::Value to_json(const SavedEvaluation& e) {
  return json::object({{"loss", e.loss}, {"targets", e.targets}, {"data", e.data}});
}

Saver::Saver(comm::Communicator& world, Journal& journal, SavePolicy policy, std::int64_t step)
    : world_(world), journal_(journal), policy_(std::move(policy)), now_(step) {
  if (world_.rank() != 0 || (!policy_.keep_best && !policy_.rolling)) return;
  each_train(policy_.run, step, [&](std::int64_t of, const json::Value& train) {
    if (const auto e = evaluation_of(train); e && policy_.keep_best) evaluated_.emplace(of, *e);
    if (is_rolling(train)) rolling_.insert(of);
  });
}

bool Saver::due(std::int64_t step) const {
  return divides(policy_.every, step) || divides(policy_.milestones, step) || (retry_at_ > 0 && step >= retry_at_);
}

bool Saver::time_over() const { return policy_.seconds > 0 && seconds_since(rested_) >= policy_.seconds; }

void Saver::save(SaveContent content, const Context& ctx, Snapshot* snapshot, bool beside) {
  conclude();  // nothing is saved but after a step that proves the save before
  proven_ = false;
  now_ = content.step;
  begun_ = Clock::now();
  waited_ = 0;
  failure_.clear();
  diverged_ = false;
  retry_at_ = 0;
  beside_ = beside && snapshot != nullptr;
  content_.emplace(std::move(content));
  {
    const Stopwatch watch(waited_);
    try {
      begin();
      write(ctx, snapshot);
      phase_ = Phase::writing;
    } catch (const comm::AgreedError& e) {
      return failed(e);
    }
  }
  if (!beside_) settle();
  rested_ = Clock::now();
}

void Saver::advance(std::int64_t step, bool anyone_busy, bool finite) {
  now_ = step;
  if (finite && content_ && step > content_->step) proven_ = true;
  if (phase_ == Phase::idle || anyone_busy || waits_for_proof()) return;
  const Stopwatch watch(waited_);
  go_on();
  if (!beside_) settle();
}

void Saver::settle() {
  while (phase_ != Phase::idle && !waits_for_proof()) go_on();
}

void Saver::conclude() {
  proven_ = true;
  settle();
}

// The unfinished folder, which rank 0 makes where there is room for all.
void Saver::begin() {
  auto bytes = static_cast<std::int64_t>(shard_bytes(content_->store.shards()));
  world_.all_reduce(std::span<std::int64_t>(&bytes, 1), comm::Reduce::sum);
  const std::string path = policy_.run + "/" + ckpt::step_name(content_->step);
  folder_ = path + ".tmp";
  comm::agree(world_, [&] {
    if (world_.rank() != 0) return;
    ckpt::check_space(policy_.run, static_cast<std::uint64_t>(bytes));
    (void)ckpt::begin_folder(path);
  });
  folder_ = world_.all_gather(folder_)[0];
}

void Saver::write(const Context& ctx, Snapshot* snapshot) {
  if (snapshot != nullptr) snapshot->copy(ctx, content_->store);
  comm::agree(world_, [&] {
    const std::vector<ParameterShard>& own = snapshot != nullptr ? snapshot->shards() : content_->store.shards();
    worker_.start(beside_, [&own, &content = *content_, folder = folder_, rank = world_.rank(),
                            world = world_.size()](const std::atomic<bool>& cancelled) {
      return json::dump(
          ckpt::to_json(write_shard(own, content.table, content.documents, folder, rank, world, cancelled)));
    });
  });
}

// Waits for the task at hand, and does what comes after it.
void Saver::go_on() {
  try {
    switch (phase_) {
      case Phase::writing:
        commit();
        phase_ = Phase::committing;
        break;
      case Phase::committing:
        committed();
        phase_ = Phase::unproven;
        break;
      case Phase::unproven:
        start_pruning();
        phase_ = Phase::pruning;
        break;
      default:
        comm::agree(world_, [&] { (void)worker_.result(); });
        phase_ = Phase::idle;
    }
  } catch (const comm::AgreedError& e) {
    if (phase_ == Phase::writing || phase_ == Phase::committing) return failed(e);
    phase_ = Phase::idle;
    journal_.warn(now_, std::string("--keep: ") + e.what());
  }
}

// Every rank has its file, or none goes on. Rank 0 then makes them a checkpoint.
void Saver::commit() {
  std::string entry;
  comm::agree(world_, [&] { entry = worker_.result(); });
  const std::vector<std::string> texts = world_.all_gather(entry);
  comm::agree(world_, [&] {
    if (world_.rank() != 0) return;
    worker_.start(beside_, [this, entries = entries_of(texts)](const std::atomic<bool>&) -> std::string {
      const std::int64_t step = content_->step;
      ckpt::commit_folder(folder_, policy_.run + "/" + ckpt::step_name(step), ckpt::FileKind::training,
                          content_->documents.mesh, entries);
      return "";
    });
  });
}

void Saver::start_pruning() {
  comm::agree(world_, [&] {
    if (world_.rank() != 0) return;
    worker_.start(beside_, [this](const std::atomic<bool>&) -> std::string {
      prune();
      return "";
    });
  });
}

// Removes older checkpoints now that the one at hand is committed and proven. On rank 0.
void Saver::prune() {
  const std::int64_t step = content_->step;
  std::int64_t best = -1;
  if (policy_.keep_best) {
    std::map<std::int64_t, SavedEvaluation> evaluated = evaluated_;
    if (content_->evaluation) evaluated.insert_or_assign(step, *content_->evaluation);
    if (!evaluated.empty()) best = best_of(evaluated, evaluated.rbegin()->second);
  }
  const bool now = is_rolling(content_->documents.train);
  if (now) rolling_.insert(step);
  // One that stays counts among the two while it is the newest.
  const std::int64_t keep = policy_.rolling ? kNewestRolling - (now ? 0 : 1) : policy_.keep;
  ckpt::prune(policy_.run, keep, [&](std::int64_t other) {
    return other > step || other == best || divides(policy_.milestones, other) ||
           (policy_.rolling && !rolling_.contains(other));
  });
}

void Saver::committed() {
  rested_ = Clock::now();
  comm::agree(world_, [&] { (void)worker_.result(); });
  const std::int64_t step = content_->step;
  if (content_->evaluation) evaluated_.insert_or_assign(step, *content_->evaluation);
  retry_gap_ = 1;
  journal_.emit(json::object({{"type", "checkpoint"},
                              {"step", step},
                              {"path", policy_.run + "/" + ckpt::step_name(step)},
                              {"seconds", seconds_since(begun_)},
                              {"wait_s", waited_}}));
}

void Saver::failed(const comm::AgreedError& error) {
  phase_ = Phase::idle;
  rested_ = Clock::now();
  failure_ = error.what();
  diverged_ = error.code() == Exit::diverged;
  retry_at_ = now_ + retry_gap_;
  retry_gap_ = std::min(2 * retry_gap_, kLongestGap);
  const auto ignoring_errors = [](const auto& body) {
    try {
      body();
    } catch (const Error&) {
      return;  // one has been told already
    }
  };
  ignoring_errors([&] { (void)worker_.result(); });  // another rank's may have been the one that did not start
  if (world_.rank() == 0) ignoring_errors([&] { remove_tree(folder_); });
  if (diverged_) return;  // the run ends with that reason
  journal_.warn(now_, "step " + std::to_string(content_->step) + " is not saved: " + failure_);
}

}  // namespace fp8::train
