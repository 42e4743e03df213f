// Only outermost operations are recorded: with times in a run, and without in a dry one.
#include "fp8/device/profile.h"

#include <gtest/gtest.h>

#include <utility>

namespace fp8::device {
namespace {

TEST(Profile, RecordsTheOutermostOperations) {
  Profile profile;
  Context ctx;
  ctx.profile = &profile;
  { const Timer off(ctx, Work::cast, "off", 1); }
  profile.recording = Recording::timed;
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

TEST(Profile, PlansWhatADryContextStartsAndWaitsFor) {
  Profile profile;
  profile.recording = Recording::planned;
  Context run, dry;
  run.profile = dry.profile = &profile;
  dry.dry = true;
  { const Timer nothing(run, Work::cast, "not dry", 1); }
  mark(run, kForwardMark, 3);
  mark(dry, kForwardMark, 3);
  const Exchange gather{ExchangeKind::all_gather, 4, 2, 100}, sum{ExchangeKind::all_reduce, 4, 2, 8};
  std::int64_t number = 0;
  {
    const Timer start(dry, {.work = Work::communication, .kind = SpanKind::start, .exchange = gather});
    number = start.number();
  }
  { const Timer both(dry, {.work = Work::communication, .exchange = sum}); }
  { const Timer wait(dry, {.work = Work::communication, .kind = SpanKind::wait, .number = number}); }
  const std::vector<Span>& spans = profile.spans();
  ASSERT_EQ(spans.size(), 5u);
  EXPECT_EQ(spans[0].kind, SpanKind::mark);
  EXPECT_EQ(spans[0].number, 3);
  EXPECT_EQ(spans[1].exchange.bytes, 100);
  EXPECT_EQ(spans[2].exchange.kind, ExchangeKind::all_reduce);
  for (const auto& [start, wait] : {std::pair<std::size_t, std::size_t>{1, 4}, {2, 3}}) {
    EXPECT_EQ(spans[start].kind, SpanKind::start);
    EXPECT_EQ(spans[wait].kind, SpanKind::wait);
    EXPECT_EQ(spans[start].number, spans[wait].number);
  }
  EXPECT_NE(spans[1].number, spans[2].number);
  for (const Span& span : spans) EXPECT_EQ(span.begin, 0);
}

TEST(Profile, ContextWithoutProfileIsNotTimed) {
  const Timer timer({}, Work::cast, "nothing", 1);
  EXPECT_EQ(Context{}.profile, nullptr);
}

}  // namespace
}  // namespace fp8::device
