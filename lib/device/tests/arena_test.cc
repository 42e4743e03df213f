// Arenas: addresses, the peak by category, release by scopes, equal peaks of dry and real runs, out-of-memory message.
#include "fp8/device/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "fp8_test.h"

namespace fp8::device {
namespace {

using test::error_of;

// A small step: two activations stay allocated, scratch is released in between, gathered weights come last.
void step(Arena& arena) {
  const Scope all(arena);
  arena.allocate(1000, "activations");
  {
    const Scope inner(arena);
    arena.allocate(640, "scratch");
    arena.allocate(64, "scratch");
  }
  arena.allocate(128, "activations");
  {
    const Scope inner(arena);
    arena.allocate(100, "gathered weights");
  }
}

TEST(Arena, AddressesAreDistinctAlignedAndNeverNull) {
  Arena dry, real(1 << 16, DeviceType::host);
  EXPECT_TRUE(dry.dry());
  EXPECT_FALSE(real.dry());
  for (Arena* arena : {&dry, &real}) {
    std::set<std::byte*> seen;
    const std::byte* const first = arena->allocate(1, "x");
    for (const std::size_t bytes : {0u, 0u, 1u, 64u, 65u, 1000u, 0u}) {
      std::byte* const p = arena->allocate(bytes, "x");
      EXPECT_NE(p, nullptr);
      EXPECT_EQ((p - first) % 256, 0);
      EXPECT_TRUE(seen.insert(p).second);
    }
  }
}

TEST(Arena, BlocksDoNotOverlap) {
  Arena arena(4096, DeviceType::host);
  std::byte* const a = arena.allocate(100, "a");
  std::byte* const b = arena.allocate(100, "b");
  std::memset(a, 1, 100);
  std::memset(b, 2, 100);
  EXPECT_EQ(a[99], std::byte{1});
  EXPECT_EQ(b[0], std::byte{2});
}

TEST(Arena, PeakByCategory) {
  Arena arena;
  step(arena);
  EXPECT_EQ(arena.mark(), 0u);
  EXPECT_EQ(arena.peak(), 1024u + 768u + 256u);
  const auto usage = arena.usage_at_peak();
  ASSERT_EQ(usage.size(), 2u);
  EXPECT_EQ(usage[0].category, "activations");
  EXPECT_EQ(usage[0].bytes, 1024u);
  EXPECT_EQ(usage[1].category, "scratch");
  EXPECT_EQ(usage[1].bytes, 1024u);
}

TEST(Arena, LaterPeakReplacesTheCategories) {
  Arena arena;
  step(arena);
  arena.allocate(4000, "logits");
  const auto usage = arena.usage_at_peak();
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_EQ(usage[0].category, "logits");
  EXPECT_EQ(arena.peak(), 4096u);
}

TEST(Arena, ReleaseReturnsMemoryInReverseOrder) {
  Arena arena(1024, DeviceType::host);
  const std::size_t start = arena.mark();
  std::byte* const first = arena.allocate(64, "a");
  const std::size_t middle = arena.mark();
  std::byte* const second = arena.allocate(64, "b");
  arena.release(middle);
  EXPECT_EQ(arena.allocate(64, "c"), second);
  arena.release(1 << 20);
  EXPECT_EQ(arena.mark(), 512u);
  arena.release(start);
  EXPECT_EQ(arena.allocate(1024, "d"), first);
}

TEST(Arena, RealRunFitsThePeakOfTheDryRun) {
  Arena dry;
  step(dry);
  Arena real(dry.peak(), DeviceType::host);
  step(real);
  step(real);
  EXPECT_EQ(real.peak(), dry.peak());
  EXPECT_EQ(real.usage_at_peak().size(), dry.usage_at_peak().size());
}

TEST(Arena, FullNamesTheLargestUsersAndAHint) {
  Arena arena(4608, DeviceType::host);
  arena.allocate(64, "tables");
  arena.allocate(512, "scratch");
  arena.allocate(2048, "activations");
  arena.allocate(1024, "gathered weights");
  const std::string text = error_of([&] { arena.allocate(2000, "logits"); });
  EXPECT_EQ(text,
            "out of memory: logits needs 1.95 KiB more in an arena of 4.5 KiB; largest users: activations 2 KiB, "
            "gathered weights 1 KiB, scratch 512 B");
  EXPECT_NO_THROW(arena.allocate(768, "logits")) << "a failed request allocates nothing";
}

TEST(Arena, HugeRequestsAreErrorsInADryArena) {
  Arena arena;
  EXPECT_NE(error_of([&] { arena.allocate(~std::size_t{0}, "logits"); }).find("out of memory: logits needs "),
            std::string::npos);
  EXPECT_NO_THROW(arena.allocate(std::size_t{1} << 59, "half"));
  EXPECT_NO_THROW(arena.allocate(std::size_t{1} << 59, "half"));
  EXPECT_THROW(arena.allocate(1, "more"), Error);
}

}  // namespace
}  // namespace fp8::device
