// The same cases over MPI, and what only MPI has: long messages in pieces and errors of the library.
#include <gtest/gtest.h>

#include "comm_cases.h"
#include "mpi_communicator.h"
#include "mpi_main.h"

namespace fp8::comm {
namespace {

TEST(World, DoesAllThatACommunicatorDoes) { check_communicator(*world()); }

TEST(World, PartsOfItDoSoToo) {
  Communicator& all = *world();
  check_communicator(*all.split(0, -all.rank()));
  check_communicator(*all.split(all.rank(), 0));
}

TEST(World, LongMessagesTravelInPieces) {
  if (!launched()) GTEST_SKIP() << "needs MPI";
  for (const std::int64_t longest : {1, 64, 100}) {
    const std::unique_ptr<Communicator> group = mpi_world(longest);
    check_reductions(*group);
    check_amax(*group);
    for (const bool in_place : {false, true}) {
      check_all_gather(*group, in_place);
      check_reduce_scatter(*group, in_place, 10);
    }
    check_many_requests(*group);
  }
}

TEST(World, ErrorsOfTheLibraryNameTheCollective) {
  if (!launched()) GTEST_SKIP() << "needs MPI";
  std::vector<std::byte> bytes(4);
  EXPECT_EQ(test::error_of([&] { world()->broadcast(bytes, 1000); }), "MPI broadcast: MPI_ERR_ROOT: invalid root");
}

}  // namespace
}  // namespace fp8::comm

int main(int argc, char** argv) { return fp8::comm::run_tests(argc, argv); }
