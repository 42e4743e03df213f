// What a watchdog makes of collectives that a device has been given.
#include "flight.h"

#include <gtest/gtest.h>

#include <array>

namespace fp8::comm {
namespace {

constexpr double kPace = 1, kTimeout = 5;

TEST(Flight, NothingUnderWayIsNeverLate) {
  Flight flight;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(flight.look(kPace, kPace, kTimeout));
  EXPECT_EQ(flight.oldest().collective, "");
}

TEST(Flight, NamesTheOldestThatDoesNotEnd) {
  Flight flight;
  std::array<bool, 3> done{true, false, true};
  flight.at_step(17);
  const std::array<const char*, 3> names{"all-gather", "reduce-scatter", "all-reduce"};
  for (std::size_t i = 0; i < 3; ++i) flight.add(names[i], [&done, i] { return done[i]; });
  EXPECT_FALSE(flight.look(kPace, kPace, kTimeout)) << "the first is done: the clock begins";
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(flight.look(kPace, kPace, kTimeout));
  const std::optional<Stall> stall = flight.look(kPace, kPace, kTimeout);
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->message(), "reduce-scatter 2 (step 17) did not end within 5 s, although every rank has reached it");
  EXPECT_EQ(flight.oldest().count, 2);
  done[1] = true;
  EXPECT_FALSE(flight.look(kPace, kPace, kTimeout));
  EXPECT_EQ(flight.oldest().collective, "");
}

TEST(Flight, ProgressBeginsTheClockAnewAndAStoppedProcessDoesNotCount) {
  Flight flight;
  std::array<bool, 2> done{};
  for (std::size_t i = 0; i < 2; ++i) flight.add("all-gather", [&done, i] { return done[i]; });
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(flight.look(kPace, kPace, kTimeout));
  done[0] = true;
  EXPECT_FALSE(flight.look(1000, kPace, kTimeout));
  EXPECT_FALSE(flight.look(1000, kPace, kTimeout)) << "counts as twice the pace";
  EXPECT_FALSE(flight.look(1000, kPace, kTimeout));
  EXPECT_TRUE(flight.look(1000, kPace, kTimeout));
}

}  // namespace
}  // namespace fp8::comm
