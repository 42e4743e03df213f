// Results in order, whatever order the threads finish in.
#include "fp8/base/ordered.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <vector>

#include "fp8_test.h"

namespace fp8 {
namespace {

TEST(Ordered, results_are_delivered_in_the_order_of_the_items) {
  std::vector<int> seen;
  OrderedTasks<int, int> tasks(
      [](int i) {
        std::this_thread::sleep_for(std::chrono::microseconds(i % 7 == 0 ? 3000 : 100));
        return i * i;
      },
      [&](int result) { seen.push_back(result); });
  for (int i = 0; i < 100; ++i) tasks.add(i);
  tasks.finish();
  ASSERT_EQ(seen.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i * i);
}

TEST(Ordered, the_items_in_flight_are_bounded) {
  std::atomic<int> in_flight = 0, most = 0;
  OrderedTasks<int, int> tasks(
      [&](int i) {
        const int now = ++in_flight;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        return i;
      },
      [&](int) { --in_flight; });
  for (int i = 0; i < 200; ++i) tasks.add(i);
  tasks.finish();
  EXPECT_LE(most, static_cast<int>(std::thread::hardware_concurrency()) + 1);
}

TEST(Ordered, the_error_of_the_first_item_is_thrown) {
  int delivered = 0;
  const std::string message = test::error_of([&] {
    OrderedTasks<int, int> tasks(
        [](int i) {
          if (i >= 3) throw Error("item " + std::to_string(i));
          return i;
        },
        [&](int) { ++delivered; });
    for (int i = 0; i < 50; ++i) tasks.add(i);
    tasks.finish();
  });
  EXPECT_EQ(message, "item 3");
  EXPECT_EQ(delivered, 3);
}

}  // namespace
}  // namespace fp8
