// Stall detectors of a simulated job with collectives of devices.
#include "fp8/watchdog/in_flight_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "fp8_test.h"
#include "simulated_job.h"

namespace fp8::watchdog {
namespace {

constexpr double kLongReply = 1000, kShortReply = 0.05;  // time limits in seconds: if all devices answer, if one hangs

/// A device of which the test sets how many collectives have begun and how many have ended.
struct Device {
  Device(Job& job, int rank, double reply_seconds)
      : queue(job.shared_progress(rank), 0,
              {[this] {
                 if (hangs.valid()) hangs.wait();
                 if (!failure.empty()) throw Error(failure);
               },
               [this] {
                 if (hangs.valid()) hangs.wait();
                 aborted = true;
               },
               reply_seconds}) {}
  void enqueue(const char* name, std::vector<InFlightQueue::Ends> messages = {}) {
    const int n = ++queued;
    queue.add(
        name, messages, [this, n] { return begun >= n; }, [this, n] { return done >= n; });
  }
  int queued = 0, begun = 0, done = 0;
  std::string failure;
  std::atomic<bool> aborted = false;
  std::shared_future<void> hangs;  // valid: the driver does not answer before it is set
  InFlightQueue queue;
};

/// One device for each rank, each with the same five queued collectives.
class Devices {
 public:
  Devices(Job& job, int size, double reply_seconds = kLongReply) {
    for (int r = 0; r < size; ++r) {
      all_.push_back(std::make_unique<Device>(job, r, reply_seconds));
      job.progress(r).set_step(17);
      for (const char* name : {"all-gather", "all-gather", "reduce-scatter", "reduce-scatter", "all-reduce"})
        all_.back()->enqueue(name);
    }
  }
  Device& operator[](int rank) { return *all_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::unique_ptr<Device>> all_;
};

TEST(InFlightQueue, NamesTheRankWhoseDeviceDoesNotBegin) {
  for (const int lost : {0, 1, 2}) {
    Job job(3);
    Devices devices(job, 3);
    for (int r = 0; r < 3; ++r) devices[r].begun = r == lost ? 2 : 3, devices[r].done = 2;
    const double seconds = job.run(100);
    EXPECT_GE(seconds, kTimeout);
    EXPECT_LE(seconds, kTimeout + 1);
    EXPECT_EQ(job.reports(), std::to_string(lost == 0 ? 1 : 0) + ": rank " + std::to_string(lost) +
                                 " did not reach reduce-scatter 3 (step 17) within 10 s");
    EXPECT_TRUE(devices[lost == 0 ? 1 : 0].aborted);
  }
}

TEST(InFlightQueue, NamesARankThatWasStoppedWhileDevicesWait) {
  Job job(3);
  Devices devices(job, 3);
  for (int r = 0; r < 3; ++r) devices[r].begun = 1;
  job.stop(2);
  EXPECT_LE(job.run(100), kTimeout + 1);
  EXPECT_EQ(job.reports(), "0: rank 2 did not answer in all-gather 1 (step 17) within 10 s");
}

TEST(InFlightQueue, NamesACollectiveThatNoDeviceEnds) {
  Job job(2);
  Devices devices(job, 2);
  for (int r = 0; r < 2; ++r) devices[r].begun = 5, devices[r].done = 4;
  (void)job.run(100);
  EXPECT_EQ(job.reports(), "0: all-reduce 5 (step 17) did not end within 10 s, although every rank has reached it");
}

// The host of rank 0 waits in a barrier, the device of rank 1 in a collective; rank 2 computes and is named.
TEST(InFlightQueue, CollectivesOfHostAndDeviceAreWatchedTogether) {
  Job job(3);
  Devices devices(job, 3);
  job.wait(0, "barrier");
  for (int r = 0; r < 3; ++r) devices[r].begun = devices[r].done = r == 0 ? 5 : 2;
  devices[1].begun = 3;
  (void)job.run(100);
  EXPECT_EQ(job.reports(), "0: rank 2 did not reach barrier 1 (step 17) within 10 s");
}

// Rank 1 exchanges messages with both others at the same time, after five collectives.
TEST(InFlightQueue, NamesTheOtherRankOfAMessage) {
  for (const int lost : {0, 2}) {
    Job job(3);
    Devices devices(job, 3);
    devices[1].enqueue("message", {{1, 0}, {0, 1}, {1, 2}, {2, 1}});
    devices[0].enqueue("message", {{1, 0}});
    devices[0].enqueue("message", {{0, 1}});
    devices[2].enqueue("message", {{1, 2}, {2, 1}});
    for (int r = 0; r < 3; ++r) devices[r].begun = devices[r].done = 5;
    devices[1].begun = 6;
    for (const int r : {0, 2}) {
      if (r != lost) devices[r].begun = devices[r].done = devices[r].queued;
    }
    EXPECT_LE(job.run(100), kTimeout + 1);
    EXPECT_EQ(job.reports(), "1: rank " + std::to_string(lost) + " did not reach message 1 from rank 1 to rank " +
                                 std::to_string(lost) + " (step 17) within 10 s");
    devices[1].failure = "NCCL: remote process exited";
    EXPECT_EQ(test::error_of([&] { (void)devices[1].queue.oldest(); }),
              "NCCL: remote process exited in message 1 from rank 1 to rank 0");
  }
}

TEST(InFlightQueue, NamesTheGroup) {
  Job job(2);
  for (int r = 0; r < 2; ++r) job.progress(r).add_group(kPart, {0, 1}, "dp_shard");
  InFlightQueue queue(job.shared_progress(0), 1, {[] {}, [] {}, kLongReply});
  queue.add(
      "all-gather", {}, [] { return true; }, [] { return false; });
  (void)job.run(100);
  EXPECT_EQ(job.reports(), "0: rank 1 did not reach all-gather 1 of dp_shard within 10 s");
}

TEST(InFlightQueue, ReportsNothingWhileCollectivesEnd) {
  Job job(2);
  Devices devices(job, 2);
  for (int done = 0; done <= 5; ++done) {
    for (int r = 0; r < 2; ++r) devices[r].begun = std::min(done + 1, 5), devices[r].done = done;
    EXPECT_GE(job.run(kTimeout * 0.9), kTimeout * 0.9);
  }
  EXPECT_GE(job.run(5 * kTimeout), 5 * kTimeout) << "no collective is queued";
  EXPECT_EQ(job.reports(), "");
}

TEST(InFlightQueue, AnErrorOfADeviceEndsTheJob) {
  Job job(2);
  Devices devices(job, 2);
  job.wait(1);  // the error is reported although the host waits
  devices[1].failure = "NCCL: remote process exited";
  EXPECT_LT(job.run(100), 1);
  EXPECT_EQ(job.reports(), "1: rank 1: NCCL: remote process exited in all-gather 1");
  EXPECT_TRUE(devices[1].aborted);
}

// The driver does not answer abort() either. The report names the oldest collective that had not ended at its last
// answer.
TEST(InFlightQueue, ADriverThatHangsDoesNotBlockTheReport) {
  for (const int hung : {0, 1}) {
    Job job(2);
    std::promise<void> end;
    Devices devices(job, 2, kShortReply);
    for (int r = 0; r < 2; ++r) devices[r].begun = 3, devices[r].done = 2;
    EXPECT_GE(job.run(4), 4);
    devices[hung].hangs = end.get_future().share();
    EXPECT_LE(job.run(100), 2 * kTimeout + 1);
    EXPECT_EQ(job.reports(),
              "0: reduce-scatter 3 (step 17) did not end within 10 s, although every rank has reached it");
    EXPECT_EQ(devices[0].aborted, hung != 0);
    end.set_value();
    // Set by the thread that abort() leaked.
    for (int i = 0; i < 1000 && !devices[0].aborted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(devices[0].aborted);
  }
}

TEST(InFlightQueue, IsRemovedFromTheTableByItsDestructor) {
  Job job(2);
  { const Devices devices(job, 2); }
  Devices again(job, 2);
  again[0].begun = 1;
  (void)job.run(100);
  EXPECT_EQ(job.reports(), "0: rank 1 did not reach all-gather 1 (step 17) within 10 s");
}

}  // namespace
}  // namespace fp8::watchdog
