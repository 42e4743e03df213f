// Tables, colours, progress without a terminal.
#include "fp8/cli/output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace fp8::cli {
namespace {

TEST(Table, AlignsTextAndNumbers) {
  EXPECT_EQ(table({{"name", "size", "precision"}, {"a", "1.5", "fp8"}, {"longer", "1000", ""}, {"c", "-", "bf16"}}),
            "name    size  precision\n"
            "a        1.5  fp8\n"
            "longer  1000\n"
            "c          -  bf16\n");
  EXPECT_EQ(table({}), "");
  EXPECT_EQ(table({{"h"}, {"\xC3\xA9"}, {"ab"}}), "h\n\xC3\xA9\nab\n");
  EXPECT_EQ(table({{"a", "b"}, {"\xC3\xA9\xC3\xA9", "x"}}), "a   b\n\xC3\xA9\xC3\xA9  x\n");
}

TEST(Style, PaintsOnlyWhenOn) {
  EXPECT_EQ(Style{}.bold("x"), "x");
  EXPECT_EQ(Style{}.red("x"), "x");
  EXPECT_EQ(Style{true}.bold("x"), "\x1b[1mx\x1b[0m");
  EXPECT_EQ(Style{true}.green("x"), "\x1b[32mx\x1b[0m");
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(Style::for_stdout().on);
  ::unsetenv("NO_COLOR");
}

TEST(Progress, IsSilentWhenQuiet) {
  testing::internal::CaptureStderr();
  {
    Progress p(true);
    EXPECT_FALSE(p.shown());
    p.update("working");
    p.done();
  }
  {
    Progress p(false);  // captured: no terminal
    p.update("working");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, WritesALineFromTimeToTimeWithoutATerminal) {
  testing::internal::CaptureStderr();
  {
    Progress now(false, "fp8-x", std::chrono::milliseconds(0)), later(false, "fp8-x"), quiet(true, "fp8-x");
    EXPECT_TRUE(now.shown());
    now.update("1 of 2");
    now.done();
    now.update("2 of 2\x1b[J");
    later.update("never");
    quiet.update("never");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "fp8-x: 1 of 2\nfp8-x: 2 of 2\\x1b[J\n");
}

TEST(TerminalColumns, InBounds) {
  EXPECT_GE(terminal_columns(), 40);
  EXPECT_LE(terminal_columns(), 200);
}

}  // namespace
}  // namespace fp8::cli
