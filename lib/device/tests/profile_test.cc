// Only outermost operations are recorded, and only with a profile that is on.
#include "fp8/device/profile.h"

#include <gtest/gtest.h>

namespace fp8::device {
namespace {

TEST(Profile, RecordsTheOutermostOperations) {
  Profile profile;
  Context ctx;
  ctx.profile = &profile;
  { const Timer off(ctx, Work::cast, "off", 1); }
  profile.on = true;
  {
    const Timer outer(ctx, Work::cast, "quantize", 6, 2);
    const Timer inner(ctx, Work::elementwise, "part of it", 3);
  }
  { const Timer next(ctx, Work::optimizer, "AdamW", 10); }
  Context dry = ctx;
  dry.dry = true;
  { const Timer nothing(dry, Work::cast, "computes nothing", 1); }
  ASSERT_EQ(profile.spans().size(), 2u);
  const Span &first = profile.spans()[0], &second = profile.spans()[1];
  EXPECT_EQ(first.name, "quantize");
  EXPECT_EQ(first.work, Work::cast);
  EXPECT_EQ(first.bytes, 6);
  EXPECT_EQ(first.flops, 2);
  EXPECT_EQ(second.name, "AdamW");
  EXPECT_LE(first.begin, first.end);
  EXPECT_LE(first.end, second.begin);
  profile.clear();
  EXPECT_TRUE(profile.spans().empty());
}

TEST(Profile, ContextWithoutProfileIsNotTimed) {
  const Timer timer({}, Work::cast, "nothing", 1);
  EXPECT_EQ(Context{}.profile, nullptr);
}

}  // namespace
}  // namespace fp8::device
