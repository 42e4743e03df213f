// The checkpoint of a run that is found: the newest, the best, one step; also while another thread saves and prunes.
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "fixture.h"

namespace fp8::ckpt {
namespace {

class Find : public FolderTest {
 protected:
  void write(std::int64_t step, const std::optional<Evaluation>& evaluation = {}, std::int64_t ranks = 2) const {
    write_folder(path(step), ranks, step, 0, evaluation);
  }
  void write_loss(std::int64_t step, double loss) const { write(step, Evaluation{loss, 100, "data"}); }
  std::string path(std::int64_t step) const { return run_ + "/" + step_name(step); }
  void damage(std::int64_t step) const { std::filesystem::remove(path(step) + "/rank-00001-of-00002.h5"); }
  // The name of what find_valid() finds, and the reports.
  std::string found(Which which = Which::last) {
    reports_.clear();
    const auto checkpoint = find_valid(
        run_, which, [&](const std::string& of, const std::string& reason) { reports_.push_back(of + " " + reason); });
    return checkpoint ? std::filesystem::path(checkpoint->path()).filename().string() : "none";
  }
  // The name of what an argument opens, or the error behind `run`.
  std::string opened(const std::string& suffix) const {
    std::string name;
    const std::string error = error_of([&] {
      const auto of_run = open_of_run(run_ + suffix);
      name = of_run ? std::filesystem::path(of_run->checkpoint.path()).filename().string() +
                          (of_run->verified ? "" : ", not verified")
                    : "no run";
    });
    return error == "no error" ? name : error.substr(run_.size());
  }

  const std::string run_ = at("run");
  std::vector<std::string> reports_;
};

TEST_F(Find, TheNewestValidOneAndReportsDamage) {
  EXPECT_EQ(found(), "none");
  for (const int step : {1, 2, 3}) std::filesystem::create_directories(run_), write(step);
  EXPECT_EQ(found(), "step-00000003");
  damage(3);
  std::filesystem::remove(path(2) + "/manifest.json");
  EXPECT_EQ(found(), "step-00000001");
  ASSERT_EQ(reports_.size(), 2U);
  EXPECT_HOLDS(reports_[0], "rank-00001-of-00002.h5");
  EXPECT_HOLDS(reports_[1], "no manifest.json");
  std::filesystem::rename(path(1), path(9));
  EXPECT_EQ(found(), "none");
  EXPECT_HOLDS(reports_.at(0), "step-00000009: /train: step 1 differs from the step in its name");
  std::filesystem::remove_all(run_);
  EXPECT_EQ(found(), "none");
}

TEST_F(Find, SkipsAForgedStep) {
  std::filesystem::create_directories(run_);
  write(1);
  write_folder(at("forged"), 2, -2);
  std::filesystem::rename(at("forged"), path(2));
  EXPECT_EQ(found(), "step-00000001");
  EXPECT_HOLDS(reports_.at(0), "step-00000002: /train: step is -2, which is below 0");
}

TEST_F(Find, TheBestIsTheEarliestOfTheLowestComparableLosses) {
  std::filesystem::create_directories(run_);
  write_loss(1, 0.5);
  EXPECT_EQ(found(Which::best), "step-00000001");
  write(2, Evaluation{0.1, 99, "data"});    // over other targets than the newest one
  write(3, Evaluation{0.1, 100, "other"});  // on other data
  write_loss(4, 0.4);
  write_loss(5, 0.3);
  write_loss(6, 0.3);
  write_loss(7, std::numeric_limits<double>::quiet_NaN());
  write(8);
  EXPECT_EQ(found(Which::best), "step-00000005");
  EXPECT_TRUE(reports_.empty());
  damage(5);
  EXPECT_EQ(found(Which::best), "step-00000006");
  EXPECT_EQ(reports_.size(), 1U);
  EXPECT_EQ(found(), "step-00000008");
}

TEST_F(Find, ArgumentsThatNameARun) {
  std::filesystem::create_directories(run_);
  EXPECT_EQ(opened(""), "no run");
  EXPECT_EQ(opened("@last"), "@last: the run has no checkpoint");
  EXPECT_EQ(opened("@7"), "@7: the run has no checkpoint of this step; it has none");
  write(20);
  EXPECT_EQ(opened("@best"),
            "@best: no checkpoint of the run has an evaluation loss; a run that evaluates at the steps that it saves "
            "stores one");
  write_loss(30, 0.5);
  write_loss(40, 0.6);
  EXPECT_EQ(opened(""), "step-00000040");
  EXPECT_EQ(opened("//"), "step-00000040");
  EXPECT_EQ(opened("@last"), "step-00000040");
  EXPECT_EQ(opened("/@best"), "step-00000030");
  EXPECT_EQ(opened("@20"), "step-00000020, not verified");
  EXPECT_EQ(opened("@00020"), "step-00000020, not verified");
  EXPECT_EQ(opened("@7"), "@7: the run has no checkpoint of this step; it has 20 30 40");
  for (const std::string bad : {"@", "@first", "@-20", "@20x", "@1e3", "@ 20"})
    EXPECT_EQ(opened(bad), bad + ": expected last, best or a step after @");
  EXPECT_EQ(opened("/step-00000020"), "no run");
  EXPECT_EQ(opened("/missing@last"), "no run");
  EXPECT_EQ(opened("x"), "no run");
  write_model(run_ + ".h5");
  EXPECT_EQ(opened(".h5"), "no run");
  std::filesystem::copy(path(20), run_ + "@last");  // a path that exists wins
  EXPECT_EQ(opened("@last"), "no run");
  for (const int step : {30, 40}) damage(step);  // step 20 has no loss
  EXPECT_HOLDS(opened("@best"), "@best: no valid checkpoint of the run has an evaluation loss; ");
  EXPECT_EQ(opened(""), "step-00000020");
  damage(20);
  EXPECT_HOLDS(opened(""), ": every checkpoint in it is damaged; move them away to start again; the newest: ");
}

TEST_F(Find, MessagesAboutDamageSayWhatIsTriedNext) {
  std::filesystem::create_directories(run_);
  write_loss(1, 0.2);
  write_loss(2, 0.3);
  write_loss(3, 0.1);
  write_loss(4, 0.4);
  damage(3);
  const auto messages = [&](const std::string& suffix) { return open_of_run(run_ + suffix)->checkpoint.passed_over(); };
  EXPECT_EQ(opened("@best"), "step-00000001");
  ASSERT_EQ(messages("@best").size(), 1U);
  EXPECT_TRUE(messages("@best")[0].starts_with(path(3) + ": damaged, looking for the best of the others: " + path(3)));
  damage(4);
  ASSERT_EQ(messages("").size(), 2U);
  EXPECT_TRUE(messages("")[0].starts_with(path(4) + ": damaged, trying an older one: " + path(4)));
}

TEST_F(Find, WhatIsOpenCanBeReadAfterItIsRemoved) {
  std::filesystem::create_directories(run_);
  write(3, {}, 4);
  for (const std::string suffix : {"", "@3"}) {
    const auto of_run = open_of_run(run_ + suffix);
    ASSERT_TRUE(of_run);
    std::filesystem::rename(path(3), at("kept"));
    std::filesystem::create_directory(path(3));
    expect_samples(of_run->checkpoint);
    of_run->checkpoint.verify();
    std::filesystem::remove(path(3));
    std::filesystem::rename(at("kept"), path(3));
  }
}

// The report of a damaged checkpoint is a point at which the run removes the next one.
TEST_F(Find, ListsTheFolderAgainIfACheckpointWasRemoved) {
  std::filesystem::create_directories(run_);
  for (const Which which : {Which::last, Which::best}) {
    write_loss(2, 0.2);
    write_loss(3, 0.1);
    std::filesystem::remove(path(3) + "/manifest.json");
    std::vector<std::string> reports;
    const auto checkpoint = find_valid(run_, which, [&](const std::string& of, const std::string&) {
      reports.push_back(of);
      write_loss(4, 0.3);
      std::filesystem::remove_all(path(2));
    });
    ASSERT_TRUE(checkpoint);
    EXPECT_EQ(checkpoint->path(), path(4));
    EXPECT_EQ(reports, std::vector{path(3)});
    std::filesystem::remove_all(run_);
    std::filesystem::create_directory(run_);
  }
}

TEST_F(Find, WhileARunSavesAndPrunes) {
  std::filesystem::create_directories(run_);
  write_loss(1, 1.0);
  std::atomic<bool> stop = false;
  std::thread run([&] {
    for (std::int64_t step = 2; !stop; ++step) {
      write_loss(step, 1.0);
      prune(run_, 1);
    }
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  std::string bad;
  for (int i = 0; bad.empty() && std::chrono::steady_clock::now() < end; ++i) {
    if (found(i % 2 == 0 ? Which::last : Which::best) == "none") bad = "none in round " + std::to_string(i);
    for (const std::string& report : reports_) bad += report;
    if (bad.empty() && error_of([&] { open_of_run(run_)->checkpoint.verify(); }) != "no error") bad = "lost";
  }
  stop = true;
  run.join();
  EXPECT_EQ(bad, "");
}

}  // namespace
}  // namespace fp8::ckpt
