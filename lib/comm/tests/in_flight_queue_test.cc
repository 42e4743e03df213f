// Collectives of devices under the watchdog of the host's: which rank's device is missing, from which of them.
#include "in_flight_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "fp8_test.h"
#include "job.h"

namespace fp8::comm {
namespace {

constexpr double kEndless = 1000,
                 kShort = 0.05;  // seconds of patience: for devices that answer, and for one that hangs

/// A device that works when told to: how many of its collectives it has come to, and done.
struct Device {
  Device(Job& job, int rank, double patience)
      : queue(job.shared_progress(rank), 0,
              {[this] {
                 if (hangs.valid()) hangs.wait();
                 if (!failure.empty()) throw Error(failure);
               },
               [this] {
                 if (hangs.valid()) hangs.wait();
                 aborted = true;
               },
               patience}) {}
  void give(const char* name) {
    const int n = ++given;
    queue.add(
        name, [this, n] { return come >= n; }, [this, n] { return done >= n; });
  }
  int given = 0, come = 0, done = 0;
  std::string failure;
  std::atomic<bool> aborted = false;
  std::shared_future<void> hangs;  // valid: its driver answers nothing before that
  InFlightQueue queue;
};

/// As many as the job has ranks, each given the same five collectives.
class Devices {
 public:
  Devices(Job& job, int size, double patience = kEndless) {
    for (int r = 0; r < size; ++r) {
      all_.push_back(std::make_unique<Device>(job, r, patience));
      job.progress(r).at_step(17);
      for (const char* name : {"all-gather", "all-gather", "reduce-scatter", "reduce-scatter", "all-reduce"})
        all_.back()->give(name);
    }
  }
  Device& operator[](int rank) { return *all_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::unique_ptr<Device>> all_;
};

TEST(InFlightQueue, NamesTheRankWhoseDeviceDoesNotCome) {
  for (const int lost : {0, 1, 2}) {
    Job job(3);
    Devices devices(job, 3);
    for (int r = 0; r < 3; ++r) devices[r].come = r == lost ? 2 : 3, devices[r].done = 2;
    const double seconds = job.run(100);
    EXPECT_GE(seconds, kTimeout);
    EXPECT_LE(seconds, kTimeout + 1);
    EXPECT_EQ(job.heard(), std::to_string(lost == 0 ? 1 : 0) + ": rank " + std::to_string(lost) +
                               " did not reach reduce-scatter 3 (step 17) within 10 s");
    EXPECT_TRUE(devices[lost == 0 ? 1 : 0].aborted);
  }
}

TEST(InFlightQueue, NamesARankThatWasStoppedWhileDevicesWait) {
  Job job(3);
  Devices devices(job, 3);
  for (int r = 0; r < 3; ++r) devices[r].come = 1;
  job.stop(2);
  EXPECT_LE(job.run(100), kTimeout + 1);
  EXPECT_EQ(job.heard(), "0: rank 2 did not answer in all-gather 1 (step 17) within 10 s");
}

TEST(InFlightQueue, OneThatNoDeviceEndsIsNamedToo) {
  Job job(2);
  Devices devices(job, 2);
  for (int r = 0; r < 2; ++r) devices[r].come = 5, devices[r].done = 4;
  (void)job.run(100);
  EXPECT_EQ(job.heard(), "0: all-reduce 5 (step 17) did not end within 10 s, although every rank has reached it");
}

// The host of one waits for the others' hosts, and one of these for its device: who computes is to blame.
TEST(InFlightQueue, HostAndDeviceHaveOneWatchdog) {
  Job job(3);
  Devices devices(job, 3);
  job.wait(0, "barrier");
  for (int r = 0; r < 3; ++r) devices[r].come = devices[r].done = r == 0 ? 5 : 2;
  devices[1].come = 3;
  (void)job.run(100);
  EXPECT_EQ(job.heard(), "0: rank 2 did not reach barrier 1 (step 17) within 10 s");
}

TEST(InFlightQueue, WhatGoesOnIsNotLate) {
  Job job(2);
  Devices devices(job, 2);
  for (int done = 0; done <= 5; ++done) {
    for (int r = 0; r < 2; ++r) devices[r].come = std::min(done + 1, 5), devices[r].done = done;
    EXPECT_GE(job.run(kTimeout * 0.9), kTimeout * 0.9);
  }
  EXPECT_GE(job.run(5 * kTimeout), 5 * kTimeout) << "nothing is under way";
  EXPECT_EQ(job.heard(), "");
}

TEST(InFlightQueue, AnErrorOfADeviceEndsTheJob) {
  Job job(2);
  Devices devices(job, 2);
  job.wait(1);  // whatever the host does
  devices[1].failure = "NCCL: remote process exited";
  EXPECT_LT(job.run(100), 1);
  EXPECT_EQ(job.heard(), "1: rank 1: NCCL: remote process exited in all-gather 1");
  EXPECT_TRUE(devices[1].aborted);
}

// Not even to the order to give up. The collective is the oldest that was not done when the driver last answered.
TEST(InFlightQueue, ADriverThatHangsKeepsNobodyFromSpeaking) {
  for (const int hung : {0, 1}) {
    Job job(2);
    std::promise<void> end;
    Devices devices(job, 2, kShort);
    for (int r = 0; r < 2; ++r) devices[r].come = 3, devices[r].done = 2;
    EXPECT_GE(job.run(4), 4);
    devices[hung].hangs = end.get_future().share();
    EXPECT_LE(job.run(100), kTimeout + 1);
    EXPECT_EQ(job.heard(), "0: reduce-scatter 3 (step 17) did not end within 10 s, although every rank has reached it");
    EXPECT_EQ(devices[0].aborted, hung != 0);
    end.set_value();
    // By the thread that was left alone with it.
    for (int i = 0; i < 1000 && !devices[0].aborted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(devices[0].aborted);
  }
}

TEST(InFlightQueue, IsForgottenWithItsCommunicator) {
  Job job(2);
  { const Devices devices(job, 2); }
  Devices again(job, 2);
  again[0].come = 1;
  (void)job.run(100);
  EXPECT_EQ(job.heard(), "0: rank 1 did not reach all-gather 1 (step 17) within 10 s");
}

}  // namespace
}  // namespace fp8::comm
