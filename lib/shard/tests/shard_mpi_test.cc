// Sharding over all ranks of a job and over subgroups.
#include <gtest/gtest.h>

#include "../../comm/tests/mpi_main.h"
#include "shard_cases.h"

namespace fp8::shard {
namespace {

TEST(Sharding, OverAllRanks) { check_sharding(*comm::world()); }

TEST(Sharding, OverSubgroups) {
  comm::Communicator& all = *comm::world();
  check_sharding(*all.split(all.rank() % 2, all.rank()));
}

}  // namespace
}  // namespace fp8::shard

int main(int argc, char** argv) { return fp8::comm::run_tests(argc, argv); }
