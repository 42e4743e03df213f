// The pool of an arena: blocks that are freed in any order, beside a stack that is released by scopes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "fp8/device/arena.h"
#include "fp8_test.h"

namespace fp8::device {
namespace {

using test::error_of;

// A block with its own pattern of bytes in a real arena.
struct Block {
  std::byte* data;
  std::size_t bytes;
  std::byte pattern;
};

// Allocates and frees at random: blocks of the pool in any order, blocks of the stack in reverse order. A seed
// determines the calls. Returns the largest sum of the sizes of blocks at one time, each rounded up to 256 bytes.
std::size_t random_calls(Arena& arena, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Block> pool, stack;
  std::vector<std::size_t> marks;
  std::size_t held = 0, most = 0;
  const auto rounded = [](std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + 255) / 256 * 256; };
  const auto filled = [&](std::byte* data, std::size_t bytes) {
    const auto pattern = static_cast<std::byte>(random());
    if (!arena.dry()) std::memset(data, static_cast<int>(pattern), bytes);
    most = std::max(most, held += rounded(bytes));
    return Block{data, bytes, pattern};
  };
  const auto expect_unchanged = [&](const Block& b) {
    held -= rounded(b.bytes);
    if (arena.dry()) return;
    EXPECT_TRUE(std::all_of(b.data, b.data + b.bytes, [&](std::byte x) { return x == b.pattern; })) << "overlap";
  };
  const auto free_one = [&](std::size_t i) {
    expect_unchanged(pool[i]);
    arena.free_pooled(pool[i].data);
    pool.erase(pool.begin() + static_cast<std::ptrdiff_t>(i));
  };
  for (int i = 0; i < 400; ++i) {
    const std::size_t bytes = random() % 3000;
    switch (random() % 5) {
      case 0:
      case 1:
        pool.push_back(filled(arena.allocate_pooled(bytes, "pool"), bytes));
        break;
      case 2:
        if (!pool.empty()) free_one(random() % pool.size());
        break;
      case 3:
        marks.push_back(arena.mark());
        stack.push_back(filled(arena.allocate(bytes, "stack"), bytes));
        break;
      default:
        if (stack.empty()) break;
        expect_unchanged(stack.back());
        arena.release(marks.back());
        stack.pop_back(), marks.pop_back();
    }
  }
  while (!pool.empty()) free_one(random() % pool.size());
  for (const Block& b : stack) expect_unchanged(b);
  arena.release(0);
  return most;
}

TEST(ArenaPool, BlocksInAnyOrderDoNotOverlapAndUseWhatWasPlanned) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Arena dry;
    const std::size_t most = random_calls(dry, seed);
    EXPECT_GE(dry.peak(), most);
    std::size_t usage = 0;
    for (const Usage& u : dry.usage_at_peak()) usage += u.bytes;
    EXPECT_EQ(usage, dry.peak());
    Arena real(dry.peak(), DeviceType::host);
    random_calls(real, seed);
    random_calls(real, seed);
    EXPECT_EQ(real.peak(), dry.peak());
    EXPECT_NO_THROW((void)real.allocate_pooled(dry.peak(), "all")) << "nothing is held, in one piece";
    Arena small(dry.peak() - 256, DeviceType::host);
    EXPECT_THROW(random_calls(small, seed), Error);
  }
}

// Saved activations with one micro-batch in flight need as much memory as on a stack.
TEST(ArenaPool, BlocksInReverseOrderLeaveNothingUnused) {
  Arena arena;
  const auto step = [&] {
    PooledMemory first(arena);
    first.allocate(1000, "activations");
    {
      PooledMemory second(arena);
      const Scope scope(arena);
      second.allocate(256, "activations");
      arena.allocate(512, "scratch");
    }
    const Scope scope(arena);
    arena.allocate(256, "scratch");
    first.allocate(1, "activations");
  };
  step();
  step();
  EXPECT_EQ(arena.peak(), 1024u + 256u + 512u);
  const std::vector<Usage> usage = arena.usage_at_peak();
  ASSERT_EQ(usage.size(), 2u);
  EXPECT_EQ(usage[0].bytes, 1280u);
  EXPECT_EQ(usage[1].bytes, 512u);
}

TEST(ArenaPool, UnusedRangesArePartOfThePeakAndAreUsedAgain) {
  Arena arena;
  std::byte* const a = arena.allocate_pooled(256, "a");
  std::byte* const b = arena.allocate_pooled(512, "b");
  std::byte* const c = arena.allocate_pooled(256, "c");
  EXPECT_EQ(a - c, 256 + 512);
  arena.free_pooled(b);
  std::byte* const d = arena.allocate_pooled(768, "d");  // does not fit where b was
  EXPECT_EQ(c - d, 768);
  EXPECT_EQ(arena.peak(), 256u + 512u + 256u + 768u);
  EXPECT_EQ(arena.usage_at_peak()[1].category, "unused in pool");
  EXPECT_EQ(arena.usage_at_peak()[1].bytes, 512u);
  EXPECT_EQ(a - arena.allocate_pooled(200, "e"), 256);
  EXPECT_EQ(a - arena.allocate_pooled(200, "f"), 512);
  EXPECT_EQ(arena.peak(), 256u + 512u + 256u + 768u);
}

TEST(ArenaPool, MovedMemoryIsFreedOnce) {
  Arena arena;
  PooledMemory one(arena);
  std::byte* const first = one.allocate(1, "x");
  {
    const PooledMemory other(std::move(one));
    EXPECT_NE(arena.allocate_pooled(1, "x"), first);
  }
  EXPECT_EQ(arena.allocate_pooled(1, "x"), first);
}

TEST(ArenaPool, StackAndPoolShareTheMemory) {
  Arena arena(1024, DeviceType::host);
  arena.allocate(512, "stack");
  PooledMemory pool(arena);
  pool.allocate(256, "pool");
  EXPECT_EQ(error_of([&] { arena.allocate(257, "stack"); }),
            "out of memory: stack needs 257 B more in an arena of 1 KiB; largest users: stack 512 B, pool 256 B");
  EXPECT_THROW(pool.allocate(257, "pool"), Error);
  EXPECT_NO_THROW(pool.allocate(256, "pool"));
  pool.free();
  EXPECT_NO_THROW(arena.allocate(512, "stack"));
}

}  // namespace
}  // namespace fp8::device
