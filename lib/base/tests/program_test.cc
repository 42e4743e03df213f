// Programs run to their end.
#include "fp8/base/program.h"

#include <sys/stat.h>

#include <filesystem>

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

TEST(Program, IsFoundInFolders) {
  const test::TemporaryFolder scratch;
  const auto at = [&](const char* name) { return scratch.path() + "/" + name; };
  for (const char* folder : {"a", "b", "c"}) std::filesystem::create_directory(at(folder));
  test::write_file(at("a/tool"), "");
  test::write_file(at("c/tool"), "");
  ASSERT_EQ(::chmod(at("c/tool").c_str(), 0755), 0);
  ASSERT_EQ(::chmod(at("a/tool").c_str(), 0644), 0);
  EXPECT_EQ(find_program(":" + at("a") + ":" + at("b") + "::" + at("c") + ":", "tool"), at("c") + "/tool");
  EXPECT_EQ(find_program(at("b"), "tool"), "");
  EXPECT_EQ(find_program("", "tool"), "");
  check_program("sh");
  check_program(at("c/tool"));
  EXPECT_EQ(test::error_of([] { check_program("fp8-no-such-program"); }), "fp8-no-such-program: no such program");
  EXPECT_EQ(test::error_of([&] { check_program(at("b/tool")); }), at("b/tool") + ": no such program");
  EXPECT_EQ(test::error_of([&] { check_program(at("a/tool")); }), at("a/tool") + ": cannot be run: Permission denied");
}

}  // namespace
}  // namespace fp8
