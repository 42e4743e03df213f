// Asynchronous and synchronous saves on one rank without MPI: the checkpoints that are committed, recorded and kept,
// and the state after a failed save. The test is also run with ThreadSanitizer.
#include "fp8/state/saver.h"

#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <semaphore>
#include <thread>

#include "manifest_parts.h"
#include "small_model.h"

namespace fp8::state {
namespace {

using namespace test;

TEST(Worker, RunsATaskInTheBackground) {
  Worker worker;
  std::binary_semaphore go(0);
  worker.start(true, [&](const PieceRunner&) {
    go.acquire();
    return std::string("done");
  });
  EXPECT_TRUE(worker.busy());
  go.release();
  EXPECT_EQ(worker.result(), "done");
  EXPECT_FALSE(worker.busy());
  EXPECT_EQ(worker.result(), "");
  worker.start(false, [](const PieceRunner&) { return std::string("at once"); });
  EXPECT_FALSE(worker.busy());
  EXPECT_EQ(worker.result(), "at once");
}

TEST(Worker, ResultThrowsTheErrorOfTheTask) {
  Worker worker;
  for (const bool async : {false, true}) {
    worker.start(async, [](const PieceRunner& run) -> std::string {
      run([] { throw Error("disk: full", Exit::no); });
      return "";
    });
    EXPECT_EQ(error_of([&] { (void)worker.result(); }, Exit::no), "disk: full");
    worker.start(async, [](const PieceRunner&) -> std::string { throw std::bad_alloc(); });
    EXPECT_EQ(error_of([&] { (void)worker.result(); }), "out of memory");
    EXPECT_EQ(worker.result(), "");
  }
}

TEST(Worker, HasTheLowestPriorityUntilItIsWaitedFor) {
  const int own = ::sched_getscheduler(0);
  std::atomic<int> found = -1;
  const auto work = [&](const PieceRunner& run) {
    while (found != own) run([&] { found = ::sched_getscheduler(0); });
    return std::string("done");
  };
  Worker worker;
  worker.start(true, work);
  for (int i = 0; i < 100; ++i) {
    while (worker.pieces() < static_cast<std::uint64_t>(i)) std::this_thread::yield();
    EXPECT_TRUE(worker.busy());
    EXPECT_NE(found, own);
  }
  EXPECT_EQ(found, SCHED_IDLE);
  EXPECT_EQ(worker.result(), "done");
  found = -1;
  worker.start(false, work);
  EXPECT_EQ(found, own);
  EXPECT_EQ(worker.result(), "done");
}

// Threads that keep all cores busy while it lives.
class BusyCores {
 public:
  BusyCores() {
    for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i)
      threads_.emplace_back([this] {
        while (!stop_) continue;
      });
  }
  ~BusyCores() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

TEST(Worker, DoesNotStarveWhileItIsWaitedFor) {
  const auto seconds = [](bool beside) {
    Worker worker;
    const auto start = std::chrono::steady_clock::now();
    worker.start(beside, [](const PieceRunner& run) {
      for (int i = 0; i < 100; ++i) {
        run([] {
          std::uint64_t digit = 0;
          for (int n = 0; n < 500000; ++n) digit = digit * 6364136223846793005u + 1442695040888963407u;
          volatile std::uint64_t used = digit;
          (void)used;
        });
      }
      return std::string("done");
    });
    EXPECT_EQ(worker.result(), "done");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const BusyCores busy;
  double sync = 0, async = 0;
  for (int attempt = 0; attempt < 4; ++attempt) {  // other programs may take the cores during one of the two
    sync = seconds(false), async = seconds(true);
    if (async < 4 * sync + 1) return;
  }
  ADD_FAILURE() << "asynchronous: " << async << " s, synchronous: " << sync << " s";
}

TEST(Worker, DestructionCancelsTheTask) {
  bool saw = false;
  {
    Worker worker;
    worker.start(true, [&](const PieceRunner& run) -> std::string {
      try {
        for (;;) run([] { std::this_thread::yield(); });
      } catch (const Error& e) {
        saw = e.what() == std::string("given up");
        throw;
      }
    });
  }
  EXPECT_TRUE(saw);
}

// Lowers the limit of file sizes of this process during its lifetime.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    (void)std::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit lower{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &lower), 0);
  }
  ~FileSizeLimit() { EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0); }

 private:
  rlimit before_{};
};

class Saving : public FolderTest {
 protected:
  Saving() {
    std::filesystem::create_directories(at("run"));
    hooks_.record = [this](const json::Value& r) { records_.push_back(r); };
    hooks_.warning = [this](const std::string& text) { said_ += text + "\n"; };
    shard::StoreOptions options;
    options.compute = DType::f32;
    kit_ = std::make_unique<Kit>(*one_, config_, small_table(config_), options);
    kit_->fill(odd_value);
    snapshot_.emplace(kit_->ctx, kit_->store);
  }
  SavePolicy policy() const { return {at("run"), 0, 0, 0, false}; }
  SaveContent content(std::int64_t step, std::optional<ckpt::Evaluation> evaluation = std::nullopt,
                      bool rolling = false) {
    json::Value train = json::object({{"step", step}});
    if (rolling) train.as_object().set("rolling", true);
    if (evaluation) train.as_object().set("evaluation", to_json(*evaluation));
    return {step,
            {hf::to_json(config_), train, json::Array{}, mesh_of(1), std::nullopt},
            kit_->store,
            kit_->store.table(),
            evaluation};
  }
  void save(SaveState& saves, std::int64_t step, std::optional<ckpt::Evaluation> evaluation = std::nullopt) {
    start_save(saves, content(step, std::move(evaluation)), kit_->ctx, nullptr);
    finish_save(saves, true);
  }
  std::string file(std::int64_t step, const std::string& name = "rank-00000-of-00001.h5") const {
    return read_file(at("run/" + ckpt::step_name(step) + "/" + name));
  }
  // The steps of the checkpoints, newest first, and the names of temporary folders.
  std::string steps() const {
    std::string text;
    for (const auto& s : ckpt::list_steps(at("run"))) text += std::to_string(s.step) + " ";
    for (const auto& e : std::filesystem::directory_iterator(at("run")))
      if (e.path().extension() == ".tmp") text += e.path().filename().string() + " ";
    return text;
  }
  std::string story() const {
    std::string text;
    for (const json::Value& r : records_)
      text += r.as_object().get_string("type", "record") + " " +
              std::to_string(r.as_object().get_int("step", "record")) + ", ";
    return text;
  }

  const hf::ModelConfig config_ = small_model();
  std::unique_ptr<comm::Communicator> one_ = comm::solo();
  std::unique_ptr<Kit> kit_;
  std::optional<shard::Snapshot> snapshot_;
  Hooks hooks_;
  Journal journal_{hooks_, *one_};
  std::vector<json::Value> records_;
  std::string said_;
};

TEST_F(Saving, AsynchronousSavesWriteTheSameBytes) {
  SaveState saves(*one_, journal_, policy());
  save(saves, 3);
  const std::string bytes = file(3), manifest = file(3, "manifest.json");
  std::filesystem::remove_all(at("run/step-00000003"));
  start_save(saves, content(3), kit_->ctx, &*snapshot_);
  EXPECT_EQ(saves.failure, "");
  for (int step = 0; step < 3; ++step) kit_->fill(whole_value);  // steps go on
  finish_save(saves);
  EXPECT_TRUE(file(3) == bytes);
  EXPECT_TRUE(file(3, "manifest.json") == manifest);
  EXPECT_EQ(story(), "checkpoint 3, checkpoint 3, ");
  save(saves, 4);
  EXPECT_FALSE(file(4) == bytes);
}

// The sum of wait_s is the time that the caller spent in these functions until the last record.
TEST_F(Saving, AllWaitingIsCounted) {
  using Clock = std::chrono::steady_clock;
  SavePolicy p = policy();
  p.keep = 1;
  for (shard::Snapshot* const snapshot : {static_cast<shard::Snapshot*>(nullptr), &*snapshot_}) {
    records_.clear();
    double spent = 0, last = 0;
    SaveState saves(*one_, journal_, p);
    const auto timed = [&](const auto& call) {
      const std::size_t records = records_.size();
      const Clock::time_point start = Clock::now();
      call();
      spent += std::chrono::duration<double>(Clock::now() - start).count();
      if (records_.size() > records) last = spent;
    };
    for (std::int64_t step = 1; step <= 8; step += 2) {
      timed([&] { start_save(saves, content(step), kit_->ctx, snapshot); });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // steps go on
      timed([&] { advance_save(saves, step + 1, saves.worker.busy(), true); });
    }
    timed([&] { finish_save(saves, true); });
    double waited = 0;
    for (const json::Value& r : records_) waited += r.as_object().get_double("wait_s", "record");
    EXPECT_EQ(records_.size(), 4u);
    EXPECT_LE(waited, last);
    EXPECT_GE(waited, last - 0.05 - last / 4) << "the last call goes on after the record";
  }
}

TEST_F(Saving, IsCommittedAtTheEndOfAStep) {
  SaveState saves(*one_, journal_, policy());
  advance_save(saves, 1, false, true);  // no save is under way
  start_save(saves, content(1), kit_->ctx, &*snapshot_);
  advance_save(saves, 2, true, true);  // another rank still writes
  EXPECT_EQ(story(), "");
  EXPECT_EQ(steps(), "step-00000001.tmp ");
  for (std::int64_t step = 3; story().empty(); ++step) advance_save(saves, step, saves.worker.busy(), true);
  EXPECT_EQ(steps(), "1 ");
  ckpt::Checkpoint::open(at("run/step-00000001")).verify();
}

TEST_F(Saving, ASecondSaveWaitsForTheFirst) {
  SaveState saves(*one_, journal_, policy());
  for (std::int64_t step = 1; step <= 4; ++step) start_save(saves, content(step), kit_->ctx, &*snapshot_);
  EXPECT_EQ(story(), "checkpoint 1, checkpoint 2, checkpoint 3, ");
  save(saves, 5);
  EXPECT_EQ(story(), "checkpoint 1, checkpoint 2, checkpoint 3, checkpoint 4, checkpoint 5, ");
  EXPECT_EQ(steps(), "5 4 3 2 1 ");
}

// Another run's folder takes the place of this run's before a save, while it is written and before older checkpoints
// are removed.
TEST_F(Saving, NothingIsCommittedOrRemovedInAnotherFolder) {
  enum { before, writing, pruning };
  for (const auto when : {before, writing, pruning}) {
    for (shard::Snapshot* const snapshot : {static_cast<shard::Snapshot*>(nullptr), &*snapshot_}) {
      LockedFolder held;
      ASSERT_EQ(held.take(at("run")), std::nullopt);
      SavePolicy p = policy();
      p.keep = 1;
      p.held = &held;
      SaveState saves(*one_, journal_, p);
      save(saves, 1);
      const auto replace = [&] {
        while (saves.worker.busy()) std::this_thread::yield();
        std::filesystem::rename(at("run"), at("moved"));
        std::filesystem::create_directory(at("run"));
        std::filesystem::copy(at("moved/step-00000001"), at("run/step-00000001"));
      };
      const std::string reason = error_of([&] {
        if (when == before) replace();
        start_save(saves, content(2), kit_->ctx, snapshot);
        if (when == pruning) finish_save(saves);
        if (when != before) replace();
        finish_save(saves, true);
        ADD_FAILURE() << "the save ended, " << when;
      });
      EXPECT_EQ(reason, at("run") + ": another folder has taken the place of the folder of this run; the run ends " +
                            "and writes nothing more");
      EXPECT_EQ(steps(), "1 ") << when;
      EXPECT_EQ(std::filesystem::exists(at("moved/step-00000002")), when == pruning || (when == writing && !snapshot));
      EXPECT_TRUE(std::filesystem::exists(at("moved/step-00000001"))) << when;
      EXPECT_EQ(said_, "");
      std::filesystem::remove_all(at("run"));
      std::filesystem::remove_all(at("moved"));
      std::filesystem::create_directory(at("run"));
    }
  }
}

TEST_F(Saving, OlderCheckpointsStayUntilAStepConfirmsTheNewest) {
  SavePolicy p = policy();
  p.keep = 1;
  for (shard::Snapshot* const snapshot : {static_cast<shard::Snapshot*>(nullptr), &*snapshot_}) {
    SaveState saves(*one_, journal_, p);
    const auto steps_after = [&](std::int64_t step, bool finite) {
      for (int i = 0; i < 3; ++i) {  // at most three calls: start the commit, start pruning, end it
        while (saves.worker.busy()) std::this_thread::yield();
        advance_save(saves, step, false, finite);
      }
      while (saves.worker.busy()) std::this_thread::yield();
      return steps();
    };
    save(saves, 1);
    start_save(saves, content(5), kit_->ctx, snapshot);
    EXPECT_EQ(steps_after(6, false), "5 1 ");
    EXPECT_EQ(steps_after(7, false), "5 1 ");
    finish_save(saves);
    EXPECT_EQ(steps(), "5 1 ");
    EXPECT_EQ(steps_after(8, true), "5 ");
    start_save(saves, content(9), kit_->ctx, snapshot);
    EXPECT_EQ(steps_after(9, true), "9 5 ") << "a step does not confirm the weights that it made";
    finish_save(saves, true);
    EXPECT_EQ(steps(), "9 ");
    std::filesystem::remove_all(at("run/step-00000009"));
  }
}

TEST_F(Saving, APostponedSaveIsDueAtTheNextStep) {
  SavePolicy p = policy();
  p.every = 10;
  SaveState saves(*one_, journal_, p);
  postpone_save(saves, 10);
  EXPECT_TRUE(save_due(saves, 11));
  save(saves, 11);
  EXPECT_FALSE(save_due(saves, 12));
}

TEST_F(Saving, ValuesThatNoCheckpointMayHoldAreNotCommitted) {
  SaveState saves(*one_, journal_, policy());
  save(saves, 1);
  const shard::ParameterShard& o = kit_->store.shards()[3];
  const std::string name = kit_->store.table()[3].name;
  const auto spoil = [&](const View& view, float value, const std::string& where, const std::string& reason) {
    auto* const last = static_cast<float*>(view.data) + view.size() - 1;
    const float before = std::exchange(*last, value);
    for (shard::Snapshot* const snapshot : {static_cast<shard::Snapshot*>(nullptr), &*snapshot_}) {
      start_save(saves, content(2), kit_->ctx, snapshot);
      finish_save(saves);
      EXPECT_TRUE(saves.diverged);
      EXPECT_EQ(saves.failure, at("run/step-00000002.tmp/rank-00000-of-00001.h5") + ": /" + where + name +
                                   ": holds a value that is not finite" + reason);
      EXPECT_EQ(steps(), "1 ");
    }
    *last = before;
  };
  spoil(o.master, NAN, "weights/", "");
  spoil(o.master, -INFINITY, "weights/", "");
  spoil(o.m, INFINITY, "optimizer/m/", "");
  spoil(o.v, INFINITY, "optimizer/v/", " or below 0");
  spoil(o.v, -1e-30f, "optimizer/v/", " or below 0");
  save(saves, 2);
  EXPECT_FALSE(saves.diverged);
  EXPECT_EQ(steps(), "2 1 ");
}

TEST_F(Saving, AnAbandonedSaveIsNoCheckpoint) {
  {
    SaveState saves(*one_, journal_, policy());
    save(saves, 1);
    start_save(saves, content(2), kit_->ctx, &*snapshot_);
  }
  EXPECT_EQ(ckpt::list_steps(at("run")).size(), 1u);
  EXPECT_EQ(story(), "checkpoint 1, ");
}

TEST_F(Saving, IsRetriedAfterGrowingGaps) {
  SavePolicy p = policy();
  p.every = 100;
  SaveState saves(*one_, journal_, p);
  save(saves, 100);
  EXPECT_FALSE(save_due(saves, 101));
  std::filesystem::rename(at("run"), at("away"));
  std::vector<std::int64_t> tried;
  for (std::int64_t step = 200; step < 220; ++step) {
    advance_save(saves, step, saves.worker.busy(), true);
    if (!save_due(saves, step)) continue;
    tried.push_back(step);
    start_save(saves, content(step), kit_->ctx, step % 2 == 0 ? &*snapshot_ : nullptr);
    EXPECT_NE(saves.failure.find("run"), std::string::npos);
  }
  EXPECT_EQ(tried, (std::vector<std::int64_t>{200, 201, 203, 207, 215}));
  EXPECT_EQ(story(), "checkpoint 100, warning 200, warning 201, warning 203, warning 207, warning 215, ");
  EXPECT_EQ(said_.find("step 200 is not saved: " + at("run") + ": "), 0u) << said_;
  std::filesystem::rename(at("away"), at("run"));
  EXPECT_FALSE(save_due(saves, 230));
  EXPECT_TRUE(save_due(saves, 231));
  save(saves, 231);
  EXPECT_EQ(saves.failure, "");
  EXPECT_EQ(steps(), "231 100 ");
  EXPECT_FALSE(save_due(saves, 232));
  EXPECT_TRUE(save_due(saves, 300));
}

TEST_F(Saving, AFailedWriteLeavesTheEarlierCheckpointsAlone) {
  SaveState saves(*one_, journal_, policy());
  save(saves, 1);
  const std::string before = file(1);
  for (const bool async : {false, true}) {
    for (const rlim_t limit : {0, 600, 4096, 30000}) {
      const FileSizeLimit lowered(limit);
      start_save(saves, content(2), kit_->ctx, async ? &*snapshot_ : nullptr);
      finish_save(saves);
      EXPECT_NE(saves.failure.find("step-00000002.tmp"), std::string::npos) << saves.failure;
      EXPECT_EQ(steps(), "1 ");
    }
  }
  EXPECT_TRUE(file(1) == before);
  save(saves, 2);
  EXPECT_EQ(steps(), "2 1 ");
  ckpt::Checkpoint::open(at("run/step-00000002")).verify();
}

TEST_F(Saving, KeepsTheNewestMilestonesAndTheBest) {
  SavePolicy p = policy();
  p.every = 1, p.keep = 2, p.milestones = 4, p.keep_best = true;
  const auto loss = [](double value, std::int64_t targets = 10) { return ckpt::Evaluation{value, targets, "data"}; };
  {
    SaveState saves(*one_, journal_, p);
    save(saves, 1, loss(3));
    save(saves, 2, loss(1));
    save(saves, 3, loss(2));
    save(saves, 4, loss(NAN));
    save(saves, 5, loss(1.5));
    save(saves, 6, loss(1));  // no better than step 2
    EXPECT_EQ(steps(), "6 5 4 2 ");
  }
  SaveState saves(*one_, journal_, p, 6);  // resumed
  save(saves, 7, loss(1.2));
  EXPECT_EQ(steps(), "7 6 4 2 ");
  save(saves, 8, loss(0.5));
  EXPECT_EQ(steps(), "8 7 6 4 ");
  save(saves, 9, loss(0.7));
  save(saves, 10);
  EXPECT_EQ(steps(), "10 9 8 4 ");
  save(saves, 11, loss(7, 11));  // a loss over other tokens, not comparable with those before
  save(saves, 13, loss(8, 11));
  save(saves, 14, loss(9, 11));
  EXPECT_EQ(steps(), "14 13 11 8 4 ");
  EXPECT_EQ(said_, "");
}

TEST_F(Saving, OfRollingCheckpointsTheNewestTwoStay) {
  SavePolicy p = policy();
  p.rolling = true;
  const auto roll = [&](SaveState& saves, std::int64_t step) {
    start_save(saves, content(step, std::nullopt, true), kit_->ctx, nullptr);
    finish_save(saves, true);
  };
  {
    SaveState asked(*one_, journal_, policy());
    for (const std::int64_t step : {1, 2, 3}) save(asked, step);  // saves of --save-every
  }
  {
    SaveState saves(*one_, journal_, p, 3);
    for (const std::int64_t step : {4, 5, 6}) roll(saves, step);
    EXPECT_EQ(steps(), "6 5 3 2 1 ");
  }
  {
    SaveState saves(*one_, journal_, p, 6);  // resumed
    roll(saves, 7);
    EXPECT_EQ(steps(), "7 6 3 2 1 ");
    save(saves, 8);  // the last step
    EXPECT_EQ(steps(), "8 7 3 2 1 ");
  }
  SaveState asked(*one_, journal_, policy(), 8);
  save(asked, 9);
  EXPECT_EQ(steps(), "9 8 7 3 2 1 ");
}

TEST_F(Saving, IsDueByTimeFromTheEndOfTheSaveBefore) {
  SavePolicy p = policy();
  EXPECT_FALSE(save_interval_over(SaveState(*one_, journal_, p)));
  p.seconds = 0.2;
  SaveState saves(*one_, journal_, p);
  EXPECT_FALSE(save_due(saves, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(210));
  EXPECT_TRUE(save_interval_over(saves));
  save(saves, 1);
  p.seconds = 3600;
  EXPECT_FALSE(save_interval_over(SaveState(*one_, journal_, p)));
}

TEST_F(Saving, ANewerDamagedCheckpointIsNotCountedAmongTheKept) {
  SavePolicy p = policy();
  p.keep = 1;
  SaveState saves(*one_, journal_, p);
  std::filesystem::create_directories(at("run/step-00000009"));
  save(saves, 5);
  save(saves, 6);
  EXPECT_EQ(steps(), "9 6 ");
  save(saves, 9);
  EXPECT_EQ(steps(), "9 ");
  ckpt::Checkpoint::open(at("run/step-00000009")).verify();
}

TEST_F(Saving, EvaluationsAfterTheResumedStepDoNotCount) {
  SavePolicy p = policy();
  p.keep = 1, p.keep_best = true;
  const ckpt::Evaluation worst{3, 10, "data"}, bad{2, 10, "data"}, good{1, 10, "data"};
  {
    SaveState saves(*one_, journal_, p);
    save(saves, 1, bad);
    save(saves, 9, good);
    save(saves, 10, worst);
  }
  EXPECT_EQ(steps(), "10 9 ");
  std::filesystem::remove_all(at("run/step-00000010"));
  {
    SaveState saves(*one_, journal_, p, 0);
    save(saves, 1, bad);
  }
  SaveState saves(*one_, journal_, p, 1);
  save(saves, 2, worst);
  save(saves, 3, worst);
  EXPECT_EQ(steps(), "9 3 1 ");
}

TEST_F(Saving, RecordsAreBufferedUntilTheLogCanBeWritten) {
  std::string wanted;
  {
    Journal journal(hooks_, *one_);
    const LockedFolder held;
    journal.open(at("run"), held);
    const auto emit = [&](int i) {
      journal.emit(json::object({{"type", "step"}, {"step", i}}));
      for (const json::Value& record : records_)  // records with their times
        if (record.as_object().find("step") != nullptr && record.as_object().get_int("step", "record") == i)
          return json::dump(record) + "\n";
      return std::string("no record");
    };
    wanted += emit(1);
    {
      const FileSizeLimit lowered(wanted.size() + 7);
      wanted += emit(2);
      EXPECT_EQ(read_file(at("run/log.jsonl")).substr(0, 25), wanted.substr(0, 25));
      EXPECT_FALSE(journal.failed());
      EXPECT_EQ(said_,
                at("run/log.jsonl") +
                    ": cannot write: File too large; records are buffered in memory until they can be written\n");
      wanted += json::dump(records_.back()) + "\n";  // the warning
      wanted += emit(3);
    }
    wanted += emit(4);
    EXPECT_EQ(read_file(at("run/log.jsonl")), wanted);
    said_.clear();
    const FileSizeLimit lowered(wanted.size());
    (void)emit(5);
    journal.close();
    EXPECT_NE(said_.find("log.jsonl: lacks the last 2 records\n"), std::string::npos) << said_;
  }
  EXPECT_EQ(read_file(at("run/log.jsonl")), wanted);
  EXPECT_EQ(records_.size(), 7u);  // standard output has all
}

}  // namespace
}  // namespace fp8::state
