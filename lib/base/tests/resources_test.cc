// Threads and addresses that can be had, and the errors where they cannot. tests/fault/limits.t runs every tool with
// few addresses.
#include "fp8/base/resources.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <stdexcept>

#include "fp8_test.h"

namespace fp8 {
namespace {

using test::error_of;

TEST(Resources, AThreadRunsItsBody) {
  std::atomic<int> calls = 0;
  start_thread([&] { ++calls; }).join();
  EXPECT_EQ(calls, 1);
}

TEST(Resources, ATeamStartsMoreThanOnce) {
  start_team();
  start_team();
}

// A forked process has no threads of a team: it would wait for them in its first region, until the alarm kills it.
TEST(Resources, AForkedProcessHasATeamOfItsOwn) {
  omp_set_num_threads(2);
  start_team();
  end_team();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    std::atomic<int> threads = 0;
#pragma omp parallel
    ++threads;
    ::_exit(threads == 2 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  start_team();
}

TEST(Resources, RoomForMoreThanTheAddressSpaceIsAnError) {
  check_room(4096, "a page");
  EXPECT_EQ(error_of([] { check_room(std::size_t{1} << 60U, "everything"); }), "out of memory: everything");
}

// The message of current_error() for an exception.
template <class Exception>
std::string message_of(const Exception& thrown) {
  try {
    throw thrown;
  } catch (const std::exception&) {
    return current_error().what();
  }
}

TEST(CurrentError, NamesMemoryAndKeepsErrors) {
  EXPECT_EQ(message_of(std::bad_alloc()), "out of memory");
  EXPECT_EQ(message_of(std::runtime_error("odd")), "internal error: odd");
  try {
    throw Error("a: b", Exit::diverged, {{"force", "now"}});
  } catch (const std::exception&) {
    const Error error = current_error();
    EXPECT_STREQ(error.what(), "a: b");
    EXPECT_EQ(error.code(), Exit::diverged);
    EXPECT_EQ(error.hints().size(), 1U);
  }
}

}  // namespace
}  // namespace fp8
