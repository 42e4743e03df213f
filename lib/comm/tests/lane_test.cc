// Collectives on streams, with stand-ins for the events and streams of a device.
#include "lane.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "fp8_test.h"

namespace fp8::comm::cuda {
namespace {

/// Counts what it was given and what the test let it finish.
struct Stream {
  int given = 0, finished = 0;
  std::vector<std::string> log;
  std::string name;
};

struct Event {
  Event() { ++made; }
  void record(Stream* s) { stream = s, mark = ++s->given; }
  void make_wait(Stream* s) const { s->log.push_back("waits for " + stream->name + " " + std::to_string(mark)); }
  bool done() const { return stream == nullptr || stream->finished >= mark; }
  Stream* stream = nullptr;
  int mark = 0;
  static inline int made = 0;
};

using TestLane = Lane<Event, Stream*>;

struct LaneTest : testing::Test {
  LaneTest() {
    compute.name = "compute", own.name = "own", other.name = "other";
    group = table->add_group(7, {0, 1});
    Event::made = 0;
  }
  static void collective(Stream* s) { s->log.push_back("collective"); }
  static void finish(Stream& s) { s.finished = s.given; }
  Stream compute, own, other;
  std::shared_ptr<watchdog::ProgressTable> table = std::make_shared<watchdog::ProgressTable>();
  std::size_t group = 0;
  watchdog::InFlightQueue::Device device{[] {}, [] {}, 1000};
};

TEST_F(LaneTest, StandsBetweenWhatComputationDidAndWillDo) {
  TestLane lane(&compute, &own, nullptr, 0, {});
  compute.given = 41;
  Request first = lane.start("all-gather", collective);
  Request second = lane.start("all-gather", collective);
  second.wait();
  first.wait();
  first.wait();
  EXPECT_EQ(own.log,
            (std::vector<std::string>{"waits for compute 42", "collective", "waits for compute 43", "collective"}));
  EXPECT_EQ(compute.log, (std::vector<std::string>{"waits for own 2", "waits for own 1"}));
}

TEST_F(LaneTest, ATestDoesNotWait) {
  TestLane lane(&compute, &own, nullptr, 0, {});
  Request r = lane.start("all-gather", collective);
  EXPECT_FALSE(r.test());
  EXPECT_TRUE(compute.log.empty());
  finish(own);
  EXPECT_TRUE(r.test());
  EXPECT_EQ(compute.log, (std::vector<std::string>{"waits for own 1"}));
}

TEST_F(LaneTest, EventsAreMadeForTheCollectivesUnderWayAndUsedAgain) {
  TestLane alone(&compute, &own, nullptr, 0, {});
  for (int i = 0; i < 1000; ++i) alone.start("all-gather", collective).wait();
  EXPECT_EQ(Event::made, 2);
  Event::made = 0;
  TestLane watched(&compute, &own, table, group, device);
  for (int i = 0; i < 1000; ++i) {
    std::vector<Request> three;
    for (int n = 0; n < 3; ++n) three.push_back(watched.start("all-gather", collective));
    finish(own);
  }
  EXPECT_EQ(Event::made, 2 * (3 + 1)) << "one is added before those that ended leave the queue";
}

// The watchdog asks for the events of a collective under way, which no other collective may take meanwhile.
TEST_F(LaneTest, TheWatchdogSeesTheCollectivesOfBothLanes) {
  TestLane gathers(&compute, &own, table, group, device), sums(&compute, &other, table, group, device);
  const auto pending = [&] {
    std::string texts;
    for (const auto& p : table->snapshot().pending) texts += (texts.empty() ? "" : ", ") + p.text;
    return texts.empty() ? "none" : texts;
  };
  gathers.start("all-gather", collective).wait();
  finish(compute), finish(own);
  sums.start("reduce-scatter", collective).wait();
  EXPECT_EQ(pending(), "none") << "computation is not there yet";
  finish(compute);
  EXPECT_EQ(pending(), "reduce-scatter 1");
  for (int i = 0; i < 10; ++i) gathers.start("all-gather", collective).wait();
  finish(compute), finish(own);
  EXPECT_EQ(pending(), "reduce-scatter 1");
  gathers.start("all-gather", collective).wait();
  finish(compute);
  EXPECT_EQ(pending(), "all-gather 12");
  finish(own), finish(other);
  EXPECT_EQ(pending(), "none");
}

TEST_F(LaneTest, TheWatchdogSeesMessagesOfOneGroup) {
  TestLane lane(&compute, &own, table, group, device);
  const watchdog::InFlightQueue::Ends both[] = {{0, 1}, {1, 0}};
  lane.start("all-reduce", collective).wait();
  for (int i = 0; i < 2; ++i) lane.start("message", collective, both).wait();
  finish(compute);
  own.finished = 2;
  std::string texts;
  for (const auto& p : table->snapshot().pending) texts += p.text + "\n";
  EXPECT_EQ(texts, "message 2 from rank 0 to rank 1\nmessage 2 from rank 1 to rank 0\n");
}

/// A stand-in for NCCL that counts open groups.
struct Library {
  void check(int result, const std::string& what) const {
    if (result != 0) throw Error(what + ": " + std::to_string(result));
  }
  int GroupStart() const { return ++*open, starts; }
  int GroupEnd() const { return --*open, ends; }
  int* open;
  int starts = 0, ends = 0;
};

TEST(Group, EndsAlsoWhenACallFails) {
  int open = 0, calls = 0;
  const auto body = [&] {
    ++calls;
    EXPECT_EQ(open, 1);
  };
  in_group(Library{&open}, "all-gather", body);
  EXPECT_EQ(open, 0);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(test::error_of([&] { in_group(Library{&open}, "all-gather", [] { throw Error("refused"); }); }), "refused");
  EXPECT_EQ(open, 0);
  EXPECT_EQ(test::error_of([&] { in_group(Library{&open, 0, 5}, "all-gather", body); }), "all-gather: 5");
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(test::error_of([&] { in_group(Library{&open, 3, 0}, "all-gather", body); }), "all-gather: 3");
  EXPECT_EQ(calls, 2) << "a group that did not start has no collectives";
}

}  // namespace
}  // namespace fp8::comm::cuda
