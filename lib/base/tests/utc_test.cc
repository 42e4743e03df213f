// UTC as text and back.
#include "fp8/base/utc.h"

#include <gtest/gtest.h>

namespace fp8 {
namespace {

using std::chrono::milliseconds;
using Time = std::chrono::system_clock::time_point;

TEST(Utc, IsWrittenAndRead) {
  for (const auto& [ms, text] : {std::pair<std::int64_t, const char*>{0, "1970-01-01T00:00:00.000Z"},
                                 {951782399999, "2000-02-28T23:59:59.999Z"},
                                 {951782400000, "2000-02-29T00:00:00.000Z"},
                                 {1795374000123, "2026-11-22T19:00:00.123Z"},
                                 {-1, "1969-12-31T23:59:59.999Z"}}) {
    EXPECT_EQ(utc_text(Time(milliseconds(ms))), text);
    EXPECT_EQ(parse_utc(text), static_cast<double>(ms) / 1000);
  }
  EXPECT_EQ(utc_text(Time(std::chrono::microseconds(1999))), "1970-01-01T00:00:00.001Z");
  EXPECT_EQ(utc_text(Time(std::chrono::microseconds(-1))), "1969-12-31T23:59:59.999Z");
}

TEST(Utc, OtherTextsAreNothing) {
  for (const char* text :
       {"", "2026-11-22", "2026-11-22T19:00:00Z", "2026-11-22T19:00:00.123", "2026-11-22T19:00:00.123z",
        "2026-11-22 19:00:00.123Z", "2026-13-22T19:00:00.123Z", "2026-02-29T19:00:00.123Z", "2026-11-22T24:00:00.123Z",
        "2026-11-22T19:60:00.123Z", "2026-11-22T19:00:61.123Z", "2026-11-22T19:00:00.12 Z", "+026-11-22T19:00:00.123Z",
        "2026-11-00T19:00:00.123Z"})
    EXPECT_EQ(parse_utc(text), std::nullopt) << text;
}

}  // namespace
}  // namespace fp8
