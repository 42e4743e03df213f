// Programs run to their end.
#include "fp8/base/program.h"

#include "fp8/base/error.h"
#include "fp8_test.h"

namespace fp8 {
namespace {

TEST(Program, InputOutputAndStatus) {
  const std::string input(1 << 20, 'x');  // more than a pipe holds
  const auto r = run_program({"sh", "-c", "cat; echo no >&2; exit 7"}, input);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->status, 7);
  EXPECT_TRUE(r->out == input);
  EXPECT_EQ(r->err, "no\n");
  EXPECT_EQ(run_program({"sh", "-c", "kill -TERM $$"}, "")->status, 128 + 15);
}

TEST(Program, AMissingProgramReturnsNothing) { EXPECT_FALSE(run_program({"fp8-no-such-program"}, "")); }

TEST(Program, IsKilledAfterItsTimeWithItsChildren) {
  EXPECT_EQ(test::error_of([] {
              (void)run_program({"sh", "-c", "sleep 100; true"}, "", 0.2);
            }),
            "sh: still running after 0.2 s, killed");
  EXPECT_EQ(run_program({"true"}, "", 60)->status, 0);
}

}  // namespace
}  // namespace fp8
