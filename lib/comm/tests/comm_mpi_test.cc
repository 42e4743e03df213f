// The cases of comm_cases.h over MPI, and cases that only MPI has: long messages in pieces and errors of the library.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "comm_cases.h"
#include "fp8/comm/mesh.h"
#include "mpi_channel.h"
#include "mpi_communicator.h"
#include "mpi_main.h"

// Open MPI calls this function in a loop while a rank waits, and finds the one of the program before that of libc. The
// kernel returns at once if nothing else can run on the core, so that ranks that wait for one that sleeps, as in tests
// of the watchdog, would use the cores all the time. After twenty calls without work in between, a rank sleeps at each
// call.
extern "C" int sched_yield() noexcept {
  using std::chrono::microseconds;
  thread_local int calls = 0;
  thread_local std::chrono::steady_clock::time_point last;
  const bool waits = std::chrono::steady_clock::now() - last < microseconds(200);
  calls = waits ? calls + 1 : 0;
  if (calls > 20) {
    std::this_thread::sleep_for(microseconds(50));
  } else {
    (void)::syscall(SYS_sched_yield);
  }
  last = std::chrono::steady_clock::now();
  return 0;
}

namespace fp8::comm {
namespace {

TEST(World, DoesAllThatACommunicatorDoes) { check_communicator(*world()); }

TEST(World, PartsOfItDoSoToo) {
  Communicator& all = *world();
  check_communicator(*all.split(0, -all.rank(), "reversed"));
  check_communicator(*all.split(all.rank(), 0, "alone"));
}

// Ranks of the job that a group has, in its order.
std::vector<std::int64_t> members(Communicator& group) {
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(group.size()));
  const std::int64_t own = world()->rank();
  const std::vector<std::int64_t> bytes(ranks.size(), sizeof own);
  group.gather({reinterpret_cast<const std::byte*>(&own), reinterpret_cast<std::byte*>(ranks.data()), bytes});
  return ranks;
}

// `count` ranks, `step` apart, from `first`.
std::vector<std::int64_t> ranks_from(int first, int count, int step) {
  std::vector<std::int64_t> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
  return ranks;
}

// rank = (replicate x dp_shard + shard) x tp + t
void check_groups(const MeshShape& shape) {
  SCOPED_TRACE("dp_replicate " + std::to_string(shape.dp_replicate) + ", dp_shard " + std::to_string(shape.dp_shard) +
               ", tp " + std::to_string(shape.tp) + ", ep " + std::to_string(shape.ep));
  const Mesh mesh(*world(), shape);
  const int rank = world()->rank(), tp = shape.tp, copy = shape.dp_shard * tp, t = rank % tp;
  const int first = rank / copy * copy;  // of the copy
  EXPECT_EQ(members(mesh.tensor()), ranks_from(rank - t, tp, 1));
  EXPECT_EQ(mesh.tensor().rank(), t);
  EXPECT_EQ(members(mesh.shards()), ranks_from(first + t, shape.dp_shard, tp));
  EXPECT_EQ(members(mesh.copy()), ranks_from(first, copy, 1));
  EXPECT_EQ(members(mesh.replicas()), ranks_from(rank % copy, shape.dp_replicate, copy));
  EXPECT_EQ(members(mesh.experts()), ranks_from(rank / shape.ep * shape.ep, shape.ep, 1));
  EXPECT_EQ(members(mesh.expert_shards()), ranks_from(first + rank % shape.ep, copy / shape.ep, shape.ep));
  EXPECT_EQ(mesh.data_parts(), shape.dp_replicate * shape.dp_shard);
  EXPECT_EQ(mesh.data_index(), rank / tp) << "ranks of tp have the same samples";
  EXPECT_EQ(mesh.counts_samples(), t == 0);
  EXPECT_EQ(mesh.file_number(), rank);
  EXPECT_EQ(mesh.file_count(), world()->size());
  std::vector<std::int64_t> counted(static_cast<std::size_t>(mesh.data_parts()));
  counted[static_cast<std::size_t>(mesh.data_index())] = mesh.counts_samples() ? 1 : 0;
  world()->all_reduce(std::span(counted), Reduce::sum);
  EXPECT_EQ(counted, std::vector<std::int64_t>(counted.size(), 1)) << "each part of the samples counts once";
}

TEST(World, MeshesHaveTheGroupsOfTheirDimensions) {
  const int ranks = world()->size();
  for (int tp = 1; tp <= ranks; ++tp)
    for (int shard = 1; shard <= ranks; ++shard) {
      if (ranks % (tp * shard) != 0) continue;
      for (int ep = 1; ep <= tp * shard; ++ep) {
        const MeshShape shape{ranks / (tp * shard), shard, 1, ep, tp};
        if (tp * shard % ep == 0)
          check_groups(shape);
        else
          EXPECT_EQ(test::error_of([&] { Mesh(*world(), shape); }),
                    "ep " + std::to_string(ep) + " does not divide the " + std::to_string(tp * shard) +
                        " ranks that share a copy of the parameters");
      }
    }
  EXPECT_EQ(test::error_of([&] {
              Mesh(*world(), {1, ranks, 1, 1, 2});
            }),
            "a mesh of " + std::to_string(2 * ranks) + " ranks for " + std::to_string(ranks));
}

TEST(Mesh, OfStages) {
  Communicator& all = *world();
  const int ranks = all.size(), inner = ranks == 4 ? 2 : 1, stages = ranks / inner;
  for (const bool linears : {false, true}) {
    const Mesh mesh(all, {1, linears ? 1 : inner, stages, 1, linears ? inner : 1});
    EXPECT_EQ(mesh.stages().size(), stages);
    EXPECT_EQ(mesh.stages().rank(), all.rank() / inner);
    EXPECT_EQ(mesh.model().rank(), all.rank());
    EXPECT_EQ(mesh.model().size(), ranks);
    EXPECT_EQ(mesh.of_stage().size(), inner);
    EXPECT_EQ(mesh.copy().rank(), all.rank() % inner);
    EXPECT_EQ(mesh.data_index(), linears ? 0 : all.rank() % inner);
    EXPECT_EQ(mesh.last_stage(), all.rank() / inner == stages - 1);
    EXPECT_EQ(mesh.counts_samples(), mesh.last_stage() && (!linears || all.rank() % inner == 0));
    std::int64_t sum = all.rank();
    mesh.stages().all_reduce(std::span<std::int64_t>(&sum, 1), Reduce::sum);
    EXPECT_EQ(sum, stages * (all.rank() % inner) + inner * stages * (stages - 1) / 2);
  }
  const Mesh copies(all, {inner, 1, stages, 1, 1});
  EXPECT_EQ(copies.of_stage().size(), inner);
  EXPECT_EQ(copies.model().size(), stages);
  EXPECT_EQ(copies.model().rank(), copies.stages().rank());
}

TEST(World, LongMessagesTravelInPieces) {
  if (!launched()) GTEST_SKIP() << "needs MPI";
  for (const std::int64_t longest : {1, 64, 100}) {
    const std::unique_ptr<Communicator> group = mpi_world(longest);
    check_reductions(*group, {});
    check_amax(*group, {});
    for (const bool in_place : {false, true}) {
      check_all_gather(*group, {}, in_place);
      check_reduce_scatter(*group, {}, in_place, 10);
    }
    check_many_requests(*group, {});
    check_several_tensors(*group, {});
    check_exchanges(*group, {}, 503);
  }
}

// More than MPI sends before the receiver asks for it.
TEST(World, LargeVectorsDoSoToo) {
  check_started_sum(*world(), {}, 300'001);
  check_pairs(*world(), {}, 300'001);
  const Exchange blocks(*world(), {}, [](int s, int r) { return 100'000 + 9 * s + r; });
  const Exchange again(*world(), {}, [](int s, int r) { return 70'000 + s + 9 * r; });
  Request first = blocks.start(*world()), second = again.start(*world());
  second.wait();
  first.wait();
  EXPECT_EQ(blocks.to->read(), blocks.expected);
  EXPECT_EQ(again.to->read(), again.expected);
}

TEST(World, UnderWatchItDoesAllOfItToo) {
  if (!launched()) GTEST_SKIP() << "needs MPI";
  const std::unique_ptr<Communicator> group = mpi_world();
  EXPECT_TRUE(group->watch(60, [](const watchdog::Stall& s) { ADD_FAILURE() << s.message(); }));
  for (int i = 0; i < 20; ++i) check_communicator(*group);
}

// What the watchdogs of all ranks report, by rank, while body(group) runs on each of them.
template <class Body>
std::vector<std::string> reports_during(Body&& body) {
  const std::unique_ptr<Communicator> group = mpi_world();
  std::atomic<bool> over = false;
  std::mutex mutex;
  std::string heard;
  EXPECT_TRUE(group->watch(1, [&](const watchdog::Stall& s) {
    const std::lock_guard lock(mutex);
    if (!over) heard += s.message() + "\n";
    over = true;
  }));
  group->progress().set_step(3);
  group->barrier();
  body(*group);
  over = true;
  return world()->all_gather([&] {
    const std::lock_guard lock(mutex);
    return heard;
  }());
}

void compute_too_long() { std::this_thread::sleep_for(std::chrono::milliseconds(1500)); }

// Who waits finds out who is missing, from a thread of its own, while the missing one computes and comes too late.
TEST(World, AWatchdogNamesTheLateRankOnce) {
  if (!launched() || world()->size() < 2) GTEST_SKIP() << "needs two ranks";
  const std::vector<std::string> all = reports_during([](Communicator& group) {
    if (group.rank() == 1) compute_too_long();
    group.barrier();
  });
  EXPECT_EQ(all[0], "rank 1 did not reach barrier 3 (step 3) within 1 s\n");
  for (std::size_t r = 1; r < all.size(); ++r) EXPECT_EQ(all[r], "");
}

TEST(World, AWatchdogNamesTheGroup) {
  if (!launched() || world()->size() < 2) GTEST_SKIP() << "needs two ranks";
  const std::vector<std::string> all = reports_during([](Communicator& group) {
    const std::unique_ptr<Communicator> part = group.split(group.rank() / 2, group.rank(), "dp_shard");
    if (group.rank() == 1) compute_too_long();
    std::vector<float> values(3);
    if (group.rank() < 2) part->all_reduce(std::span(values), Reduce::sum);
  });
  EXPECT_EQ(all[0], "rank 1 did not reach all-reduce 1 of dp_shard (step 3) within 1 s\n");
  for (std::size_t r = 1; r < all.size(); ++r) EXPECT_EQ(all[r], "");
}

// Neither rank 0, which waits for rank 1, nor those that do not take part are named.
TEST(World, AWatchdogNamesTheSenderOfAMessage) {
  if (!launched() || world()->size() < 2) GTEST_SKIP() << "needs two ranks";
  const std::vector<std::string> all = reports_during([](Communicator& group) {
    const std::unique_ptr<Communicator> part = group.split(0, group.rank(), "pp");
    const int rank = group.rank(), last = group.size() - 1;
    std::vector<std::byte> bytes(4);
    if (rank == last) compute_too_long();
    if (rank < last) start(*part, ReceivedMessage{bytes.data(), 4, rank + 1}).wait();
    if (rank > 0) start(*part, SentMessage{bytes.data(), 4, rank - 1}).wait();
  });
  const std::size_t last = all.size() - 1;
  const std::string sender = std::to_string(last), receiver = std::to_string(last - 1);
  for (std::size_t r = 0; r <= last; ++r) {
    EXPECT_EQ(all[r], r != last - 1 ? ""
                                    : "rank " + sender + " did not reach message 1 of pp from rank " + sender +
                                          " to rank " + receiver + " (step 3) within 1 s\n");
  }
}

TEST(World, AWatchdogWaitsForWorkOfARankAlone) {
  if (!launched() || world()->size() < 2) GTEST_SKIP() << "needs two ranks";
  const std::unique_ptr<Communicator> group = mpi_world();
  EXPECT_TRUE(group->watch(2, [](const watchdog::Stall& s) { ADD_FAILURE() << s.message(); }));
  agree(*group, [&] {
    if (group->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  });
}

// A rank may end its watchdog before the last messages of the others arrive.
TEST(World, AWatchdogReceivesNoMessageOfTheWatchBefore) {
  if (!launched() || world()->size() < 2) GTEST_SKIP() << "needs two ranks";
  const int rank = world()->rank();
  std::int64_t received = 0;
  for (std::int64_t watch = 1; watch <= 2; ++watch) {
    std::unique_ptr<watchdog::Channel> channel = mpi_channel(MPI_COMM_WORLD);
    if (rank == 0 && watch == 1) channel.reset();
    world()->barrier();
    watchdog::Message message;
    message.reached = watch;
    if (rank == 1) channel->send(0, message);
    world()->barrier();
    while (channel && rank == 0 && received == 0) {
      if (const auto arrived = channel->receive()) received = arrived->second.reached;
    }
    world()->barrier();
  }
  EXPECT_EQ(received, rank == 0 ? 2 : 0);
}

// Groups number their ranks by themselves; messages have the rank of the job and its machine.
TEST(World, MessagesNameTheRankOfTheJobAndItsMachine) {
  if (!launched() || world()->size() < 2) GTEST_SKIP() << "needs two ranks";
  const std::unique_ptr<Communicator> group = mpi_world();
  const int last = group->size() - 1;
  const std::unique_ptr<Communicator> reversed = group->split(0, last - group->rank(), "");
  const auto message = [&](Communicator& of) {
    return test::error_of([&] {
      agree(of, [&] {
        if (of.rank() == last) throw Error("x");
      });
    });
  };
  name_hosts(*group);
  EXPECT_EQ(message(*group), "rank " + std::to_string(last) + ": x") << "one machine is not named";
  EXPECT_EQ(message(*reversed), "rank 0: x");
  std::vector<std::string> names;
  for (int rank = 0; rank <= last; ++rank) names.push_back("node-" + std::to_string(rank));
  group->progress().set_hosts(names);
  EXPECT_EQ(message(*group), "rank " + std::to_string(last) + " (" + names.back() + "): x");
  EXPECT_EQ(message(*reversed), "rank 0 (node-0): x");
}

TEST(World, ErrorsOfTheLibraryNameTheCollective) {
  if (!launched()) GTEST_SKIP() << "needs MPI";
  std::vector<std::byte> bytes(4);
  EXPECT_EQ(test::error_of([&] { world()->broadcast(bytes, 1000); }), "MPI broadcast: MPI_ERR_ROOT: invalid root");
}

}  // namespace
}  // namespace fp8::comm

int main(int argc, char** argv) { return fp8::comm::run_tests(argc, argv); }
