#!/bin/sh
# tests/run prints a command for each failed test, and the command repeats the test.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

unset T O GTEST_FILTER FAULTS KILLS FP8_LONG FP8_SIGNALS EMULATOR
mkdir -p tree/tests/cli tree/build/test
cp "$SRC/tests/run" tree/tests
cd tree || exit 2
cat >planted.cc <<'END'
#include <gtest/gtest.h>
#include <cstdlib>
TEST(Planted, Passes) { EXPECT_EQ(1, 1); }
TEST(Planted, Fails) { EXPECT_EQ(1, 2); }
class Values : public testing::TestWithParam<int> {};
TEST_P(Values, AreOne) { EXPECT_EQ(GetParam(), 1); }
INSTANTIATE_TEST_SUITE_P(Two, Values, testing::Values(1, 2));
TEST(Planted, Ends) { if (std::getenv("PLANTED_CRASH")) std::abort(); }
END
# shellcheck disable=SC2086  # CXX may be a command with arguments, as "ccache g++"
ok "a program with failing tests is compiled" ${CXX:-g++} -std=c++20 -O0 planted.cc -lgtest_main -lgtest -o build/test/planted_test
printf '#!/bin/sh\necho ok 1 - a\necho not ok 2 - the second\necho 1..2\n' >tests/cli/some.t
printf '#!/bin/sh\necho ok 1 - a\necho not ok 2 - another\necho 1..2\n' >tests/cli/awesome.t
printf '#!/bin/sh\necho ok 1 - a\necho 1..1\nexit 3\n' >tests/cli/status.t
printf '#!/bin/sh\necho ok 1 - a\necho 1..1\n' >tests/cli/right.t

status "failures give status 1" 1 tests/run unit cli
is "the last line counts them" "$(tail -1 out)" "7 passed, 5 failed"
cat >wanted <<'END'
Failed tests, repeated each by
  GTEST_FILTER=Planted.Fails T=/planted_test tests/run unit
  GTEST_FILTER=Two/Values.AreOne/1 T=/planted_test tests/run unit
  T=/awesome.t tests/run cli    # 2 - another
  T=/some.t tests/run cli    # 2 - the second
  T=/status.t tests/run cli    # its exit status or its plan
END
is "a command for each failed test is printed" "$(sed -n '/^Failed tests/,$p' out | sed '$d')" "$(cat wanted)"
sed -n 's/^  //p' wanted >commands
while read -r command; do
  status "$command: status 1" 1 sh -c "$command"
  is "$command: one test fails" "$(sed -n 's/.* passed, //p' out)" "1 failed"
  is "$command: the output has the same command" "$(grep -cF "  $command" out)" 1
done <commands

mkdir tests/man && cp tests/cli/some.t tests/man/slow.t
status "failures in two suites give status 1" 1 env T=o tests/run man cli
is "each is repeated in its suite" "$(sed -n 's/^  \(T=[^#]*[a-z]\) .*/\1/p' out | xargs)" \
  "T=/awesome.t tests/run cli T=/slow.t tests/run man T=/some.t tests/run cli"
# shellcheck disable=SC2013 # words are wanted
missing() { for script in $(sed -n "s/^slow='\(.*\)'$/\1/p" tests/run); do [ -f "$SRC/tests/$script.t" ] || echo "$script"; done; }
is "scripts that are started first exist" "$(missing)" ""
rm -r tests/man

named() { # NAME COMMAND
  grep -qxF "  $2" out
  result $? "$1"
}
PLANTED_CRASH=1 status "a test that aborts its program gives status 1" 1 env GTEST_FILTER=-Planted.Fails tests/run unit
named "the test that aborts its program has a command" "GTEST_FILTER=Planted.Ends T=/planted_test tests/run unit"
status "a program without tests gives status 1" 1 env GTEST_FILTER=None.* tests/run unit
named "the program without tests has a command" "T=/planted_test tests/run unit"
cp -r build other
status "a failure in another build folder gives status 1" 1 env O="$PWD/other" GTEST_FILTER=Planted.Fails tests/run unit
named "the command sets the build folder" "O=$PWD/other GTEST_FILTER=Planted.Fails T=/planted_test tests/run unit"
status "a failure under EMULATOR gives status 1" 1 env EMULATOR="env PLANTED_CRASH=1" GTEST_FILTER=Planted.Ends tests/run unit
named "the command sets EMULATOR" "EMULATOR='env PLANTED_CRASH=1' GTEST_FILTER=Planted.Ends T=/planted_test tests/run unit"
ok "a test that passes gives status 0" env GTEST_FILTER=Planted.Passes T=planted tests/run unit
is "a test that passes has no command" "$(tail -2 out)" "$(printf 'ok      planted_test (1)\n1 passed, 0 failed')"
done_testing
