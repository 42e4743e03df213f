// Stall detectors of a simulated job, whose ranks wait, compute, stop and continue: the reported ranks, the reporting
// rank and the time of the report are exact.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <optional>

#include "fp8_test.h"
#include "simulated_job.h"

namespace fp8::watchdog {
namespace {

TEST(StallDetector, NamesARankThatWasStopped) {
  for (const int lost : {0, 1, 2}) {
    Job job(3);
    for (int r = 0; r < 3; ++r) {
      job.progress(r).set_step(17);
      if (r != lost) job.wait(r);
    }
    job.stop(lost);
    const double seconds = job.run(100);
    EXPECT_GT(seconds, kTimeout / 2);
    EXPECT_LE(seconds, kTimeout + 1);
    EXPECT_EQ(job.reports(), std::to_string(lost == 0 ? 1 : 0) + ": rank " + std::to_string(lost) +
                                 " did not answer in all-reduce 1 (step 17) within 10 s");
  }
}

TEST(StallDetector, NamesARankThatDoesNotReachTheCollective) {
  Job job(4);
  for (const int r : {0, 1, 3}) {
    for (int i = 0; i < 4; ++i) (void)job.progress(r).reach(0);
    job.wait(r, "reduce-scatter");
  }
  const double seconds = job.run(100);
  EXPECT_GE(seconds, kTimeout);
  EXPECT_LE(seconds, kTimeout + 1);
  EXPECT_EQ(job.reports(), "0: rank 2 did not reach reduce-scatter 5 within 10 s");
}

TEST(StallDetector, NamesSeveral) {
  Job job(4);
  job.wait(2), job.wait(3);
  job.stop(0), job.stop(1);
  job.run(100);
  EXPECT_EQ(job.reports(), "2: ranks 0, 1 did not answer in all-reduce 1 within 10 s");
}

TEST(StallDetector, NamesARankThatStopsInsideACollective) {
  Job job(3);
  for (int r = 0; r < 3; ++r) job.wait(r);
  job.run(kTimeout / 2 + 1);
  job.stop(2);
  job.run(100);
  EXPECT_EQ(job.reports(), "0: rank 2 did not answer in all-reduce 1 within 10 s");
}

TEST(StallDetector, ReportsNoLateRankThatComesInTime) {
  Job job(3);
  for (int i = 1; i <= 5; ++i) {
    job.wait(0), job.wait(1);
    job.run(kTimeout - 1);
    job.wait(2);
    job.run(1);
    for (int r = 0; r < 3; ++r) job.progress(r).end_wait();
    job.run(1);
  }
  EXPECT_EQ(job.reports(), "");
}

TEST(StallDetector, LocalWorkMayTakeLong) {
  Job job(3);
  job.wait(1), job.wait(2);
  job.progress(0).begin_local_work();
  job.run(50 * kTimeout);
  EXPECT_EQ(job.reports(), "");
  job.stop(0);
  EXPECT_LE(job.run(100), kTimeout + 1) << "its process must answer";
  EXPECT_EQ(job.reports(), "1: rank 0 did not answer in all-reduce 1 within 10 s");
}

TEST(StallDetector, AfterLocalWorkARankHasHalfATimeoutToReachTheCollective) {
  Job job(2);
  job.wait(0);
  job.progress(1).begin_local_work();
  job.run(5 * kTimeout);
  job.progress(1).end_local_work();
  job.run(kTimeout / 2 - 1);
  EXPECT_EQ(job.reports(), "");
  EXPECT_LE(job.run(100), 3);
  EXPECT_EQ(job.reports(), "0: rank 1 did not reach all-reduce 1 within 10 s");
}

TEST(StallDetector, NamesWorkWithoutProgress) {
  std::atomic<std::uint64_t> pieces = 0;
  Job job(3);
  job.wait(0), job.wait(2);
  const LocalWork local(job.progress(1));
  std::optional<WatchedWork> work(std::in_place, job.progress(1), "writing x", pieces);
  for (int i = 0; i < 20; ++i) {  // slow
    job.run(kTimeout - 1);
    ++pieces;
  }
  EXPECT_EQ(job.reports(), "");
  work.reset();
  job.run(5 * kTimeout);
  EXPECT_EQ(job.reports(), "") << "no work that must make progress";
  work.emplace(job.progress(1), "writing x", pieces);
  job.stop(1);
  job.run(kTimeout / 4);  // the time in which a process is stopped does not count
  job.stop(1, false);
  job.run(kTimeout - 1);
  EXPECT_EQ(job.reports(), "");
  EXPECT_LE(job.run(100), 3);
  EXPECT_EQ(job.reports(), "1: rank 1: writing x: no progress within 10 s");
}

TEST(StallDetector, AJobThatWasStoppedAsAWholeContinues) {
  Job job(3);
  job.wait(0), job.wait(2);
  job.run(kTimeout / 2 - 1);
  for (int r = 0; r < 3; ++r) job.stop(r);
  job.run(20 * kTimeout);
  for (int r = 0; r < 3; ++r) job.stop(r, false);
  job.run(2);
  job.wait(1);
  job.run(1);
  EXPECT_EQ(job.reports(), "");
}

TEST(StallDetector, NamesRanksInDifferentCollectives) {
  Job job(3);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(job.progress(r).add_group(kPart, {0, 1}), 1u);
  job.wait(0, "all-reduce"), job.wait(2, "all-reduce");
  job.wait(1, "all-gather", 1);
  EXPECT_GE(job.run(100), 2 * kTimeout) << "each could wait for a rank that another one names";
  EXPECT_EQ(job.reports(), "0: rank 1 did not reach all-reduce 1 within 10 s");
}

TEST(StallDetector, NamesOnlyMembersOfTheGroup) {
  Job job(4);
  for (int r = 0; r < 4; ++r) job.progress(r).add_group(kPart, {1, 3});
  job.wait(3, "all-gather", 1);
  job.stop(0), job.stop(1);
  job.run(100);
  EXPECT_EQ(job.reports(), "3: rank 1 did not answer in all-gather 1 within 10 s");
}

TEST(StallDetector, NamesTheGroup) {
  for (const bool reached : {false, true}) {
    Job job(4);
    for (int r = 0; r < 4; ++r) job.progress(r).add_group(kPart, {1, 3}, "dp_shard");
    job.progress(3).set_step(17);
    job.wait(3, "all-gather", 1);
    if (reached) job.wait(1, "all-gather", 1);
    job.progress(1).set_step(17);
    job.run(100);
    EXPECT_EQ(job.reports(),
              reached
                  ? "1: all-gather 1 of dp_shard (step 17) did not end within 10 s, although every rank has reached it"
                  : "3: rank 1 did not reach all-gather 1 of dp_shard (step 17) within 10 s");
  }
}

TEST(StallDetector, NamesTheMachines) {
  for (const bool message : {false, true}) {
    Job job(3);
    for (int r = 0; r < 3; ++r) job.progress(r).set_hosts({"node-1", "node-1", "node-2"});
    if (message) {
      job.wait_for_message(0, 2, 0);
      job.run(100);
      EXPECT_EQ(job.reports(),
                "0: rank 2 (node-2) did not reach message 1 from rank 2 (node-2) to rank 0 (node-1) within 10 s");
    } else {
      job.wait(0);
      job.stop(1), job.stop(2);
      job.run(100);
      EXPECT_EQ(job.reports(), "0: ranks 1 (node-1), 2 (node-2) did not answer in all-reduce 1 within 10 s");
    }
  }
  const std::atomic<std::uint64_t> pieces = 0;
  Job job(2);
  job.progress(1).set_hosts({"node-1", "node-2"});
  const WatchedWork work(job.progress(1), "writing x", pieces);
  job.run(100);
  EXPECT_EQ(job.reports(), "1: rank 1 (node-2): writing x: no progress within 10 s");
}

TEST(StallDetector, NamesTheContents) {
  Job job(2);
  job.progress(0).set_step(17);
  job.progress(0).set_contents("gradient of micro-batch 2 from stage 1 to stage 0");
  job.wait(0);
  job.stop(1);
  job.run(100);
  EXPECT_EQ(
      job.reports(),
      "0: rank 1 did not answer in all-reduce 1: gradient of micro-batch 2 from stage 1 to stage 0 (step 17) within "
      "10 s");
}

// Ranks 1 and 2 wait for rank 3 in two groups, and the one that waits longer reports. The end of a job takes some time,
// and mpirun continues a stopped rank before it ends it.
TEST(StallDetector, OneOfSeveralGroupsReports) {
  for (const int reporter : {1, 2}) {
    Job job(4);
    const auto add = [&](int rank, std::uint64_t key, std::vector<int> members, const char* name) {
      return job.progress(rank).add_group(key, std::move(members), name);
    };
    const std::array groups{add(1, kPart, {1, 3}, "part 1"), add(2, kPart + 1, {2, 3}, "part 2")};
    const auto wait = [&](int rank) { job.wait(rank, "all-reduce", groups.at(static_cast<std::size_t>(rank) - 1)); };
    job.stop(3);
    wait(reporter);
    job.run(reporter == 1 ? 0 : 1);
    wait(3 - reporter);
    EXPECT_LE(job.run(100), kTimeout + 1);
    const auto report = [&](int rank) {
      const std::string number = std::to_string(rank);
      return number + ": rank 3 did not answer in all-reduce 1 of part " + number + " within 10 s";
    };
    EXPECT_EQ(job.reports(), report(reporter));
    job.stop(reporter);
    job.run(kTimeout / 2);
    job.stop(3, false);
    job.run(4);
    EXPECT_EQ(job.reports(), report(reporter));
    job.stop(3);
    job.run(2 * kTimeout);
    EXPECT_EQ(job.reports(), report(reporter) + "\n" + report(3 - reporter)) << "the first one has not ended the job";
  }
}

TEST(StallDetector, OneOfSeveralErrorsIsReported) {
  const std::atomic<std::uint64_t> pieces = 0;
  Job job(3);
  const WatchedWork first(job.progress(1), "writing x", pieces), second(job.progress(2), "writing y", pieces);
  EXPECT_LE(job.run(100), kTimeout + 1);
  job.stop(1);
  job.run(kTimeout / 2);
  EXPECT_EQ(job.reports(), "1: rank 1: writing x: no progress within 10 s");
}

// The thread of a watchdog may get no processor for a time, on any rank and at any time.
TEST(StallDetector, NamesNoRankThatAnswersLate) {
  for (const int delayed : {0, 1}) {
    Job job(3);
    job.wait(0), job.wait(1);
    const LocalWork work(job.progress(2));
    for (int i = 0; i < 20; ++i) {
      job.run(kTimeout / 10);
      job.stop(delayed);
      job.run(0.6 * kTimeout);
      job.stop(delayed, false);
    }
    EXPECT_EQ(job.reports(), "");
  }
}

TEST(StallDetector, NamesTheOtherRankOfAMessage) {
  for (const int waits : {1, 3}) {
    Job job(4);
    for (int r = 0; r < 4; ++r) {
      job.progress(r).add_group(kPart, {0, 1, 3}, "pp");
      for (int i = 0; i < r; ++i) (void)job.progress(r).reach(1);  // collectives that others have not reached
    }
    for (const int r : {1, 3}) (void)job.progress(r).reach(job.progress(r).message_group(1, 1, 2).first);
    for (const int r : {0, 1}) (void)job.progress(r).reach(job.progress(r).message_group(1, 1, 0).first);
    job.progress(waits).set_step(17);
    job.wait_for_message(waits, 1, 2, 1);
    EXPECT_LE(job.run(100), kTimeout + 2);
    EXPECT_EQ(job.reports(), std::to_string(waits) + ": rank " + std::to_string(4 - waits) +
                                 " did not reach message 2 of pp from rank 1 to rank 3 (step 17) within 10 s");
  }
}

TEST(StallDetector, MessagesInBothDirectionsAreCountedSeparately) {
  Job job(2);
  (void)job.progress(1).reach(job.progress(1).message_group(0, 0, 1).first);
  job.wait_for_message(0, 1, 0);
  job.run(100);
  EXPECT_EQ(job.reports(), "0: rank 1 did not reach message 1 from rank 1 to rank 0 within 10 s");
}

TEST(StallDetector, NamesAMessageThatBothHaveReachedAndThatDoesNotEnd) {
  Job job(3);
  job.wait_for_message(2, 1, 2), job.wait_for_message(1, 1, 2);
  EXPECT_GE(job.run(100), 2 * kTimeout);
  EXPECT_EQ(job.reports(),
            "1: message 1 from rank 1 to rank 2 did not end within 10 s, although every rank has reached it");
}

// Rank 3 of a pipeline is missing; the ranks before it wait for each other, those behind it do not wait.
TEST(StallDetector, NamesNoRankThatWaitsForTheMissingOne) {
  for (const bool stopped : {false, true}) {
    Job job(5);
    job.wait_for_message(0, 1, 0);
    job.run(3);
    job.wait_for_message(1, 2, 1);
    job.run(3);
    job.wait_for_message(2, 3, 2);
    if (stopped) job.stop(3);
    EXPECT_LE(job.run(100), kTimeout + 1);
    EXPECT_EQ(job.reports(), std::string("2: rank 3 did not ") + (stopped ? "answer in" : "reach") +
                                 " message 1 from rank 3 to rank 2 within 10 s");
  }
}

TEST(StallDetector, ARankHasTheTimeoutToComputeAfterItWaited) {
  Job job(3);
  job.wait_for_message(0, 1, 0);
  job.wait_for_message(1, 2, 1);
  job.run(kTimeout - 1);
  job.progress(1).end_wait();
  job.run(kTimeout - 2);
  EXPECT_EQ(job.reports(), "");
  EXPECT_LE(job.run(100), 3);
  EXPECT_EQ(job.reports(), "0: rank 1 did not reach message 1 from rank 1 to rank 0 within 10 s");
}

// The waits are shorter than the time between two calls of poll().
TEST(StallDetector, ARankThatWaitsNowAndThenIsNotLate) {
  Job job(3);
  job.wait_for_message(0, 1, 0);
  for (int i = 0; i < 10; ++i) {
    job.run(kTimeout / 2);
    job.wait_for_message(1, 2, 1);
    job.progress(1).end_wait();
  }
  EXPECT_EQ(job.reports(), "");
}

// Rank 2 has queued the collective that rank 0 waits for, and waits for rank 3 in another group.
TEST(StallDetector, NamesTheCauseWhereARankWaitsForOneThatHasReachedItsCollective) {
  Job job(4);
  for (const int r : {0, 2}) EXPECT_EQ(job.progress(r).add_group(kPart, {0, 2}, "dp_replicate"), 1u);
  for (const int r : {2, 3}) job.progress(r).add_group(kPart + 1, {2, 3}, "dp_shard");
  (void)job.progress(2).reach(1);
  job.wait(0, "all-reduce", 1);
  job.run(kTimeout / 5);
  job.wait(2, "reduce-scatter", 2);
  job.stop(3);
  EXPECT_LE(job.run(100), kTimeout + 1);
  EXPECT_EQ(job.reports(), "2: rank 3 did not answer in reduce-scatter 1 of dp_shard within 10 s");
}

TEST(StallDetector, NamesACollectiveThatAllHaveReachedAndThatDoesNotEnd) {
  Job job(2);
  job.wait(0, "all-gather"), job.wait(1, "all-gather");
  EXPECT_GE(job.run(100), 2 * kTimeout);
  EXPECT_EQ(job.reports(), "0: all-gather 1 did not end within 10 s, although every rank has reached it");
}

}  // namespace
}  // namespace fp8::watchdog
