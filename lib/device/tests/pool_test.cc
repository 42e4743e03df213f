// Objects of a pool: how many are made, and that they return to it.
#include "fp8/device/pool.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace fp8::device {
namespace {

struct Counted {
  Counted() { ++made, ++alive; }
  ~Counted() { --alive; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  static inline int made = 0, alive = 0;
};

TEST(Pool, MakesAsManyAsAreInUseAtOneTime) {
  Counted::made = 0;
  {
    Pool<Counted> pool;
    for (int i = 0; i < 100; ++i) {
      const auto a = pool.get(), b = pool.get(), same = a;
      EXPECT_NE(a, b);
      EXPECT_EQ(Counted::alive, 2);
    }
    EXPECT_EQ(Counted::made, 2);
    const auto a = pool.get(), b = pool.get(), c = pool.get();
    EXPECT_EQ(Counted::made, 3);
  }
  EXPECT_EQ(Counted::alive, 0);
}

TEST(Pool, ItsObjectsMayOutliveIt) {
  std::optional<Pool<Counted>> pool(std::in_place);
  auto held = pool->get();
  (void)pool->get();
  EXPECT_EQ(Counted::alive, 2);
  pool.reset();
  EXPECT_EQ(Counted::alive, 1);
  held.reset();
  EXPECT_EQ(Counted::alive, 0);
}

TEST(Pool, TakesThemBackOnAnyThread) {
  Counted::made = 0;
  Pool<Counted> pool;
  std::thread other;
  for (int i = 0; i < 1000; ++i) {
    auto object = pool.get();
    if (other.joinable()) other.join();
    other = std::thread([object = std::move(object)]() mutable { object.reset(); });
  }
  other.join();
  EXPECT_LE(Counted::made, 2);
}

}  // namespace
}  // namespace fp8::device
