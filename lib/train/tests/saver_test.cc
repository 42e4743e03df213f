// Saving beside the steps and before their eyes, on one rank without MPI: what is committed, what is said, what is
// kept, and what a save that fails leaves. Runs under ThreadSanitizer too.
#include "saver.h"

#include <sched.h>
#include <sys/resource.h>

#include <csignal>
#include <semaphore>

#include "helpers.h"

namespace fp8::train {
namespace {

TEST(Worker, WorksBesideAndHandsOver) {
  Worker worker;
  std::binary_semaphore go(0);
  worker.start(true, [&](const std::atomic<bool>&) {
    go.acquire();
    return std::string("done");
  });
  EXPECT_TRUE(worker.busy());
  go.release();
  EXPECT_EQ(worker.result(), "done");
  EXPECT_FALSE(worker.busy());
  EXPECT_EQ(worker.result(), "");
  worker.start(false, [](const std::atomic<bool>&) { return std::string("at once"); });
  EXPECT_FALSE(worker.busy());
  EXPECT_EQ(worker.result(), "at once");
}

TEST(Worker, ErrorsComeOutWhereTheResultIsFetched) {
  Worker worker;
  for (const bool beside : {false, true}) {
    worker.start(beside, [](const std::atomic<bool>&) -> std::string { throw Error("disk: full", Exit::no); });
    EXPECT_EQ(error_of([&] { (void)worker.result(); }, Exit::no), "disk: full");
    worker.start(beside, [](const std::atomic<bool>&) -> std::string { throw std::bad_alloc(); });
    EXPECT_EQ(error_of([&] { (void)worker.result(); }), "out of memory");
    EXPECT_EQ(worker.result(), "");
  }
}

TEST(Worker, GivesWayBesideTheSteps) {
  const auto policy = [](const std::atomic<bool>&) { return std::to_string(::sched_getscheduler(0)); };
  const std::string own = policy({});
  Worker worker;
  worker.start(true, policy);
  EXPECT_EQ(worker.result(), std::to_string(SCHED_IDLE));
  worker.start(false, policy);
  EXPECT_EQ(worker.result(), own);
  EXPECT_EQ(policy({}), own);
}

TEST(Worker, ItsEndCancels) {
  bool saw = false;
  {
    Worker worker;
    worker.start(true, [&](const std::atomic<bool>& cancelled) -> std::string {
      while (!cancelled) std::this_thread::yield();
      saw = true;
      throw Error("given up");
    });
  }
  EXPECT_TRUE(saw);
}

// Lowers a limit of this process while it lives.
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
    StoreOptions options;
    options.compute = DType::f32;
    kit_ = std::make_unique<Kit>(*one_, config_, small_table(config_), options);
    kit_->fill(odd_value);
    snapshot_.emplace(kit_->ctx, *kit_->store);
  }
  SavePolicy policy() const { return {at("run"), 0, 0, 0, false}; }
  SaveContent content(std::int64_t step, std::optional<SavedEvaluation> evaluation = std::nullopt,
                      bool rolling = false) {
    json::Value train = json::object({{"step", step}});
    if (rolling) train.as_object().set("rolling", true);
    if (evaluation) train.as_object().set("evaluation", to_json(*evaluation));
    return {step,
            {hf::to_json(config_), train, json::Array{}, json::object({{"world", 1}}), std::nullopt},
            *kit_->store,
            kit_->store->table(),
            evaluation};
  }
  void save(Saver& saver, std::int64_t step, std::optional<SavedEvaluation> evaluation = std::nullopt) {
    saver.save(content(step, std::move(evaluation)), kit_->ctx, nullptr);
    saver.conclude();
  }
  std::string file(std::int64_t step, const std::string& name = "rank-00000-of-00001.h5") const {
    return read_file(at("run/" + ckpt::step_name(step) + "/" + name));
  }
  // The steps that are there, newest first, and left-overs.
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
  std::optional<Snapshot> snapshot_;
  Hooks hooks_;
  Journal journal_{hooks_, *one_};
  std::vector<json::Value> records_;
  std::string said_;
};

TEST_F(Saving, BothWaysWriteTheSameBytes) {
  Saver saver(*one_, journal_, policy());
  save(saver, 3);
  const std::string bytes = file(3), manifest = file(3, "manifest.json");
  std::filesystem::remove_all(at("run/step-00000003"));
  saver.save(content(3), kit_->ctx, &*snapshot_);
  EXPECT_EQ(saver.failure(), "");
  for (int step = 0; step < 3; ++step) kit_->fill(whole_value);  // steps go on
  saver.settle();
  EXPECT_TRUE(file(3) == bytes);
  EXPECT_TRUE(file(3, "manifest.json") == manifest);
  EXPECT_EQ(story(), "checkpoint 3, checkpoint 3, ");
  save(saver, 4);
  EXPECT_FALSE(file(4) == bytes);
  for (const json::Value& r : records_)
    EXPECT_LE(r.as_object().get_double("wait_s", "record"), r.as_object().get_double("seconds", "record"));
}

TEST_F(Saving, IsCommittedAtTheEndOfAStep) {
  Saver saver(*one_, journal_, policy());
  saver.advance(1, false, true);  // nothing under way
  saver.save(content(1), kit_->ctx, &*snapshot_);
  saver.advance(2, true, true);  // another rank still writes
  EXPECT_EQ(story(), "");
  EXPECT_EQ(steps(), "step-00000001.tmp ");
  for (std::int64_t step = 3; story().empty(); ++step) saver.advance(step, saver.busy() != 0, true);
  EXPECT_EQ(steps(), "1 ");
  ckpt::Checkpoint::open(at("run/step-00000001")).verify();
}

TEST_F(Saving, ASecondSaveWaitsForTheFirst) {
  Saver saver(*one_, journal_, policy());
  for (std::int64_t step = 1; step <= 4; ++step) saver.save(content(step), kit_->ctx, &*snapshot_);
  EXPECT_EQ(story(), "checkpoint 1, checkpoint 2, checkpoint 3, ");
  save(saver, 5);
  EXPECT_EQ(story(), "checkpoint 1, checkpoint 2, checkpoint 3, checkpoint 4, checkpoint 5, ");
  EXPECT_EQ(steps(), "5 4 3 2 1 ");
}

TEST_F(Saving, OlderOnesStayUntilAStepProvesTheNewest) {
  SavePolicy p = policy();
  p.keep = 1;
  for (Snapshot* const snapshot : {static_cast<Snapshot*>(nullptr), &*snapshot_}) {
    Saver saver(*one_, journal_, p);
    const auto steps_after = [&](std::int64_t step, bool finite) {
      for (int i = 0; i < 3; ++i) {  // at most: begin to commit, to prune, and end it
        while (saver.busy() != 0) std::this_thread::yield();
        saver.advance(step, false, finite);
      }
      while (saver.busy() != 0) std::this_thread::yield();
      return steps();
    };
    save(saver, 1);
    saver.save(content(5), kit_->ctx, snapshot);
    EXPECT_EQ(steps_after(6, false), "5 1 ");
    EXPECT_EQ(steps_after(7, false), "5 1 ");
    saver.settle();
    EXPECT_EQ(steps(), "5 1 ");
    EXPECT_EQ(steps_after(8, true), "5 ");
    saver.save(content(9), kit_->ctx, snapshot);
    EXPECT_EQ(steps_after(9, true), "9 5 ") << "a step does not prove what it made";
    saver.conclude();
    EXPECT_EQ(steps(), "9 ");
    std::filesystem::remove_all(at("run/step-00000009"));
  }
}

TEST_F(Saving, WhatIsPutOffIsDueAtTheNextStep) {
  SavePolicy p = policy();
  p.every = 10;
  Saver saver(*one_, journal_, p);
  saver.put_off(10);
  EXPECT_TRUE(saver.due(11));
  save(saver, 11);
  EXPECT_FALSE(saver.due(12));
}

TEST_F(Saving, ValuesThatNoCheckpointMayHoldAreNotCommitted) {
  Saver saver(*one_, journal_, policy());
  save(saver, 1);
  const ParameterShard& o = kit_->store->shards()[3];
  const std::string name = kit_->store->table()[3].name;
  const auto spoil = [&](const View& view, float value, const std::string& where, const std::string& reason) {
    auto* const last = static_cast<float*>(view.data) + view.size() - 1;
    const float before = std::exchange(*last, value);
    for (Snapshot* const snapshot : {static_cast<Snapshot*>(nullptr), &*snapshot_}) {
      saver.save(content(2), kit_->ctx, snapshot);
      saver.settle();
      EXPECT_TRUE(saver.diverged());
      EXPECT_EQ(saver.failure(), at("run/step-00000002.tmp/rank-00000-of-00001.h5") + ": /" + where + name +
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
  save(saver, 2);
  EXPECT_FALSE(saver.diverged());
  EXPECT_EQ(steps(), "2 1 ");
}

TEST_F(Saving, WhatIsDroppedIsNeverACheckpoint) {
  {
    Saver saver(*one_, journal_, policy());
    save(saver, 1);
    saver.save(content(2), kit_->ctx, &*snapshot_);
  }
  EXPECT_EQ(ckpt::list_steps(at("run")).size(), 1u);
  EXPECT_EQ(story(), "checkpoint 1, ");
}

TEST_F(Saving, IsTriedAgainAfterGrowingGaps) {
  SavePolicy p = policy();
  p.every = 100;
  Saver saver(*one_, journal_, p);
  save(saver, 100);
  EXPECT_FALSE(saver.due(101));
  std::filesystem::rename(at("run"), at("away"));
  std::vector<std::int64_t> tried;
  for (std::int64_t step = 200; step < 220; ++step) {
    saver.advance(step, saver.busy() != 0, true);
    if (!saver.due(step)) continue;
    tried.push_back(step);
    saver.save(content(step), kit_->ctx, step % 2 == 0 ? &*snapshot_ : nullptr);
    EXPECT_NE(saver.failure().find("run"), std::string::npos);
  }
  EXPECT_EQ(tried, (std::vector<std::int64_t>{200, 201, 203, 207, 215}));
  EXPECT_EQ(story(), "checkpoint 100, warning 200, warning 201, warning 203, warning 207, warning 215, ");
  EXPECT_EQ(said_.find("step 200 is not saved: " + at("run") + ": "), 0u) << said_;
  std::filesystem::rename(at("away"), at("run"));
  EXPECT_FALSE(saver.due(230));
  EXPECT_TRUE(saver.due(231));
  save(saver, 231);
  EXPECT_EQ(saver.failure(), "");
  EXPECT_EQ(steps(), "231 100 ");
  EXPECT_FALSE(saver.due(232));
  EXPECT_TRUE(saver.due(300));
}

TEST_F(Saving, AFailedWriteLeavesTheEarlierCheckpointsAlone) {
  Saver saver(*one_, journal_, policy());
  save(saver, 1);
  const std::string before = file(1);
  for (const bool beside : {false, true}) {
    for (const rlim_t limit : {0, 600, 4096, 30000}) {
      const FileSizeLimit lowered(limit);
      saver.save(content(2), kit_->ctx, beside ? &*snapshot_ : nullptr);
      saver.settle();
      EXPECT_NE(saver.failure().find("step-00000002.tmp"), std::string::npos) << saver.failure();
      EXPECT_EQ(steps(), "1 ");
    }
  }
  EXPECT_TRUE(file(1) == before);
  save(saver, 2);
  EXPECT_EQ(steps(), "2 1 ");
  ckpt::Checkpoint::open(at("run/step-00000002")).verify();
}

TEST_F(Saving, KeepsTheNewestMilestonesAndTheBest) {
  SavePolicy p = policy();
  p.every = 1, p.keep = 2, p.milestones = 4, p.keep_best = true;
  const auto loss = [](double value, std::int64_t targets = 10) { return SavedEvaluation{value, targets, "data"}; };
  {
    Saver saver(*one_, journal_, p);
    save(saver, 1, loss(3));
    save(saver, 2, loss(1));
    save(saver, 3, loss(2));
    save(saver, 4, loss(NAN));
    save(saver, 5, loss(1.5));
    save(saver, 6, loss(1));  // no better than step 2
    EXPECT_EQ(steps(), "6 5 4 2 ");
  }
  Saver saver(*one_, journal_, p, 6);  // resumed
  save(saver, 7, loss(1.2));
  EXPECT_EQ(steps(), "7 6 4 2 ");
  save(saver, 8, loss(0.5));
  EXPECT_EQ(steps(), "8 7 6 4 ");
  save(saver, 9, loss(0.7));
  save(saver, 10);
  EXPECT_EQ(steps(), "10 9 8 4 ");
  save(saver, 11, loss(7, 11));  // of other tokens: not to be compared with those before
  save(saver, 13, loss(8, 11));
  save(saver, 14, loss(9, 11));
  EXPECT_EQ(steps(), "14 13 11 8 4 ");
  EXPECT_EQ(said_, "");
}

TEST_F(Saving, OfRollingCheckpointsTheNewestTwoStay) {
  SavePolicy p = policy();
  p.rolling = true;
  const auto roll = [&](Saver& saver, std::int64_t step) {
    saver.save(content(step, std::nullopt, true), kit_->ctx, nullptr);
    saver.conclude();
  };
  {
    Saver asked(*one_, journal_, policy());
    for (const std::int64_t step : {1, 2, 3}) save(asked, step);  // with --save-every
  }
  {
    Saver saver(*one_, journal_, p, 3);
    for (const std::int64_t step : {4, 5, 6}) roll(saver, step);
    EXPECT_EQ(steps(), "6 5 3 2 1 ");
  }
  {
    Saver saver(*one_, journal_, p, 6);  // resumed
    roll(saver, 7);
    EXPECT_EQ(steps(), "7 6 3 2 1 ");
    save(saver, 8);  // the last step
    EXPECT_EQ(steps(), "8 7 3 2 1 ");
  }
  Saver asked(*one_, journal_, policy(), 8);
  save(asked, 9);
  EXPECT_EQ(steps(), "9 8 7 3 2 1 ");
}

TEST_F(Saving, IsDueByTimeFromTheEndOfTheSaveBefore) {
  SavePolicy p = policy();
  EXPECT_FALSE(Saver(*one_, journal_, p).time_over());
  p.seconds = 0.2;
  Saver saver(*one_, journal_, p);
  EXPECT_FALSE(saver.due(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(210));
  EXPECT_TRUE(saver.time_over());
  save(saver, 1);
  p.seconds = 3600;
  EXPECT_FALSE(Saver(*one_, journal_, p).time_over());
}

TEST_F(Saving, ANewerDamagedCheckpointIsNotCountedAmongTheKept) {
  SavePolicy p = policy();
  p.keep = 1;
  Saver saver(*one_, journal_, p);
  std::filesystem::create_directories(at("run/step-00000009"));
  save(saver, 5);
  save(saver, 6);
  EXPECT_EQ(steps(), "9 6 ");
  save(saver, 9);
  EXPECT_EQ(steps(), "9 ");
  ckpt::Checkpoint::open(at("run/step-00000009")).verify();
}

TEST_F(Saving, WhatARunThatWentBackHadMeasuredDoesNotCount) {
  SavePolicy p = policy();
  p.keep = 1, p.keep_best = true;
  const SavedEvaluation worst{3, 10, "data"}, bad{2, 10, "data"}, good{1, 10, "data"};
  {
    Saver saver(*one_, journal_, p);
    save(saver, 1, bad);
    save(saver, 9, good);
    save(saver, 10, worst);
  }
  EXPECT_EQ(steps(), "10 9 ");
  std::filesystem::remove_all(at("run/step-00000010"));
  {
    Saver saver(*one_, journal_, p, 0);
    save(saver, 1, bad);
  }
  Saver saver(*one_, journal_, p, 1);
  save(saver, 2, worst);
  save(saver, 3, worst);
  EXPECT_EQ(steps(), "9 3 1 ");
}

TEST_F(Saving, TheLogWaitsForRoom) {
  std::string wanted;
  {
    Journal journal(hooks_, *one_);
    journal.open(at("run"));
    const auto emit = [&](int i) {
      const json::Value record = json::object({{"type", "step"}, {"step", i}});
      journal.emit(record);
      return json::dump(record) + "\n";
    };
    wanted += emit(1);
    {
      const FileSizeLimit lowered(wanted.size() + 7);
      wanted += emit(2);
      EXPECT_EQ(read_file(at("run/log.jsonl")).substr(0, 25), wanted.substr(0, 25));
      EXPECT_FALSE(journal.failed());
      EXPECT_EQ(said_,
                at("run/log.jsonl") + ": cannot write: File too large; records wait in memory until it takes them\n");
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
  EXPECT_EQ(records_.size(), 7u);  // standard output had all
}

}  // namespace
}  // namespace fp8::train
