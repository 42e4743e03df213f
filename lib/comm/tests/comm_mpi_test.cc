// The same cases over MPI, and what only MPI has: long messages in pieces and errors of the library.
#include <gtest/gtest.h>

#include "comm_cases.h"
#include "mpi_communicator.h"
#include "mpi_main.h"

namespace fp8::comm {
namespace {

/// The job's session, kept by main.
Session*& session() {
  static Session* the_session = nullptr;
  return the_session;
}

TEST(World, DoesAllThatACommunicatorDoes) { check_communicator(session()->world()); }

TEST(World, PartsOfItDoSoToo) {
  Communicator& world = session()->world();
  check_communicator(*world.split(0, -world.rank()));
  check_communicator(*world.split(world.rank(), 0));
}

TEST(World, LongMessagesTravelInPieces) {
  if (!launched()) GTEST_SKIP() << "needs MPI";
  for (const std::int64_t longest : {1, 64, 100}) {
    const std::unique_ptr<Communicator> world = mpi_world(longest);
    check_reductions(*world);
    check_amax(*world);
    for (const bool in_place : {false, true}) {
      check_all_gather(*world, in_place);
      check_reduce_scatter(*world, in_place, 10);
    }
    check_many_requests(*world);
  }
}

TEST(World, ErrorsOfTheLibraryNameTheCollective) {
  if (!launched()) GTEST_SKIP() << "needs MPI";
  std::vector<std::byte> bytes(4);
  try {
    session()->world().broadcast(bytes, 1000);
    ADD_FAILURE() << "rank 1000 sent something";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "MPI broadcast: MPI_ERR_ROOT: invalid root");
  }
}

}  // namespace
}  // namespace fp8::comm

int main(int argc, char** argv) {
  fp8::comm::Session session;
  fp8::comm::session() = &session;
  return fp8::comm::run_tests(argc, argv, session);
}
