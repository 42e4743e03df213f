/// The main of a test program under mpirun: rank 0 prints the progress of the tests, the others print failures, and all
/// ranks end with the same status. Include it once, after the tests.
#pragma once

#include <gtest/gtest.h>

#include <iostream>
#include <memory>

#include "fp8/comm/comm.h"
#include "long.h"

namespace fp8::comm {

/// Prints failures alone.
class FailurePrinter final : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::cerr << "rank " << rank_ << ": " << (result.file_name() ? result.file_name() : "?") << ":"
              << result.line_number() << ": " << result.message() << "\n";
  }

 private:
  int rank_;
};

/// Where tests find the ranks of the job; set by run_tests().
inline Communicator*& world() {
  static Communicator* ranks = nullptr;
  return ranks;
}

/// Whether to run `cases` that take long; see test::long_run(). Rank 0 counts them for all ranks.
inline bool long_run(int cases) { return test::long_run(world()->rank() == 0 ? cases : 0); }

/// Runs every test on every rank.
inline int run_tests(int argc, char** argv) {
  Session session;
  world() = &session.world();
  GTEST_FLAG_SET(color, "no");  // behind mpirun any output looks like a terminal
  testing::InitGoogleTest(&argc, argv);
  const int rank = world()->rank();
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    const std::unique_ptr<testing::TestEventListener> silenced(listeners.Release(listeners.default_result_printer()));
    listeners.Append(std::make_unique<FailurePrinter>(rank).release());
  }
  std::int64_t status = RUN_ALL_TESTS();
  world()->all_reduce(std::span(&status, 1), Reduce::max);
  return static_cast<int>(status);
}

}  // namespace fp8::comm
