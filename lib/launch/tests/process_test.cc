// Commands that succeed, fail, never end, and leave processes running.
#include "fp8/launch/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "folder.h"
#include "lines.h"

namespace fp8::launch {
namespace {

using std::chrono::milliseconds;
using Words = std::vector<std::string>;

struct Seen {
  std::string out, err;
  int stopping = 0;
  std::size_t left = 0;
  Ended ended;
};

Seen run(const Words& words, Requests& requests, milliseconds patience = milliseconds(60'000)) {
  Seen seen;
  const Streams streams{[&](std::string_view text) { seen.out += text; },
                        [&](std::string_view text) { seen.err += text; }, [&](int signal) { seen.stopping = signal; },
                        [&](std::size_t n) { seen.left = n; }};
  seen.ended = run_command(words, requests, streams, patience);
  return seen;
}

Seen sh(const std::string& script) {
  Requests requests;
  return run({"sh", "-c", script}, requests);
}

TEST(Process, ReturnsTheStatus) {
  EXPECT_EQ(sh("exit 0").ended.how(), "status 0");
  EXPECT_EQ(sh("exit 75").ended.how(), "status 75");
  EXPECT_TRUE(sh("exit 3").ended.with(3));
  const Seen killed = sh("kill -KILL $$");
  EXPECT_EQ(killed.ended.how(), "signal KILL");
  EXPECT_FALSE(killed.ended.with(0));
  EXPECT_FALSE(killed.ended.asked);
}

TEST(Process, ForwardsOutput) {
  const Seen seen = sh("echo one; echo two >&2; printf three; printf four >&2");
  EXPECT_EQ(seen.out, "one\nthree\n");
  EXPECT_EQ(seen.err, "two\nfour");
  EXPECT_EQ(seen.ended.said, (Words{"two", "four"}));
  EXPECT_EQ(sh("echo one; printf '{\"torn'; exit 1").out, "one\n");
  EXPECT_EQ(sh("echo one; printf '{\"torn'; kill -KILL $$").out, "one\n");
}

TEST(Process, ForwardsLargeOutput) {
  const Seen seen = sh("i=0; while [ $i -lt 20000 ]; do echo line $i; echo error $i >&2; i=$((i+1)); done");
  EXPECT_TRUE(seen.out.starts_with("line 0\nline 1\n"));
  EXPECT_TRUE(seen.out.ends_with("line 19999\n"));
  EXPECT_TRUE(seen.err.ends_with("error 19999\n"));
  ASSERT_EQ(seen.ended.said.size(), 20U);
  EXPECT_EQ(seen.ended.said.front(), "error 19980");
  EXPECT_EQ(seen.ended.said.back(), "error 19999");
}

TEST(Process, SignalsAndInputAreDefault) {
  (void)::signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(sh("sh -c 'kill -PIPE $$'; [ $? -gt 128 ]").ended.how(), "status 0");           // not ignored
  EXPECT_EQ(sh("kill -TERM $$").ended.how(), "signal TERM");                                // not blocked
  EXPECT_EQ(sh("cat").ended.how(), "status 0");                                             // standard input is empty
  EXPECT_EQ(sh("test \"$(ps -o pgid= -p $$ | tr -d ' ')\" = $$").ended.how(), "status 0");  // a new process group
}

TEST(Process, CannotBeStarted) {
  Requests requests;
  const auto message = [&](const Words& words) { return error_of([&] { run(words, requests); }); };
  EXPECT_EQ(message({"no-such-program-here"}), "no-such-program-here: no such program");
  EXPECT_EQ(message({"/tmp"}), "/tmp: cannot be run: Permission denied");
  EXPECT_EQ(message({}), "command: needed");
}

// Sends the signals to this process one after another, with a delay.
class Sender {
 public:
  explicit Sender(std::vector<int> signals)
      : thread_([signals = std::move(signals)] {
          for (const int signal : signals) {
            std::this_thread::sleep_for(milliseconds(300));
            ::kill(::getpid(), signal);
          }
        }) {}
  ~Sender() { thread_.join(); }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

 private:
  std::thread thread_;
};

constexpr const char* kSaves = "trap 'echo saved; exit 75' USR1; while :; do sleep 0.02; done";

TEST(Process, StopRequestSendsUsr1) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    Requests requests;
    const Sender sender({signal});
    const Seen seen = run({"sh", "-c", kSaves}, requests);
    EXPECT_EQ(seen.ended.how(), "status 75");
    EXPECT_TRUE(seen.ended.asked);
    EXPECT_EQ(seen.stopping, signal);
    EXPECT_EQ(seen.out, "saved\n");
    EXPECT_EQ(requests.stop(), signal);
  }
}

TEST(Process, AStopRequestThatWasLostIsSentAgain) {
  Requests requests;
  const Sender sender({SIGTERM});
  const Seen seen =
      run({"sh", "-c", "trap '' USR1; sleep 1; trap 'exit 75' USR1; while :; do sleep 0.02; done"}, requests);
  EXPECT_EQ(seen.ended.how(), "status 75");
}

TEST(Process, RepeatedInterruptsKillTheCommand) {
  {
    Requests requests;
    const Sender sender({SIGINT, SIGINT});
    EXPECT_EQ(run({"sh", "-c", "trap '' USR1; while :; do sleep 0.02; done"}, requests).ended.how(), "signal TERM");
  }
  Requests requests;
  const Sender sender({SIGINT, SIGINT, SIGINT});
  EXPECT_EQ(run({"sh", "-c", "trap '' USR1 TERM; while :; do sleep 0.02; done"}, requests).ended.how(), "signal KILL");
}

TEST(Process, RepeatedTermIsOneRequest) {
  Requests requests;
  const Sender sender({SIGTERM, SIGTERM, SIGUSR1});
  const Seen seen = run({"sh", "-c", "trap 'sleep 1; exit 75' USR1; while :; do sleep 0.02; done"}, requests);
  EXPECT_EQ(seen.ended.how(), "status 75");
}

TEST(Process, IgnoredInterruptStaysIgnored) {
  struct sigaction before {
  }, ignore{};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(::sigaction(SIGINT, &ignore, &before), 0);
  {
    Requests requests;
    const Sender sender({SIGINT});
    EXPECT_EQ(run({"sleep", "0.6"}, requests).ended.how(), "status 0");
    EXPECT_EQ(requests.stop(), 0);
  }
  ASSERT_EQ(::sigaction(SIGINT, &before, nullptr), 0);
}

TEST(Process, PendingRequestsAreDiscarded) {
  {
    Requests requests;
    ::kill(::getpid(), SIGTERM);
  }
  Requests requests;
  requests.take();
  EXPECT_EQ(requests.stop(), 0);
}

TEST(Process, OrphansOfACrashAreWaitedFor) {
  Requests requests;
  const Seen seen = run({"sh", "-c", "(sleep 0.5; echo late) & kill -KILL $$"}, requests);
  EXPECT_EQ(seen.ended.how(), "signal KILL");
  EXPECT_EQ(seen.left, 1U);
  EXPECT_EQ(seen.out, "late\n");
}

TEST(Process, OrphansOfACrashAreKilledAfterPatience) {
  Requests requests;
  const auto begin = std::chrono::steady_clock::now();
  const Seen seen = run({"sh", "-c", "setsid sleep 600 & setsid sh -c 'sleep 600; :' & sleep 0.2; exit 9"}, requests,
                        milliseconds(300));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(seen.ended.how(), "status 9");
  EXPECT_GE(seen.left, 2U);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

TEST(Process, OrphansOfASuccessAreNotWaitedFor) {
  Requests requests;
  const auto begin = std::chrono::steady_clock::now();
  const Seen seen = run({"sh", "-c", "sleep 3 & exit 0"}, requests);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  EXPECT_EQ(seen.left, 0U);
  EXPECT_GT(::waitpid(-1, nullptr, 0), 0);  // the child is still running
}

TEST(Process, FailedOutputStopsTheCommand) {
  Requests requests;
  int calls = 0;
  const Streams streams{[&](std::string_view) {
                          ++calls;
                          throw Error("standard output: full");
                        },
                        {},
                        {},
                        {}};
  const Ended ended = run_command({"sh", "-c", "trap 'exit 75' USR1; while :; do echo line; sleep 0.02; done"},
                                  requests, streams, milliseconds(1000));
  EXPECT_EQ(ended.how(), "status 75");
  EXPECT_EQ(calls, 1);
  ASSERT_TRUE(ended.lost);
  EXPECT_EQ(error_of([&] { std::rethrow_exception(ended.lost); }), "standard output: full");
}

TEST(Lines, Whole) {
  WholeLines lines;
  EXPECT_EQ(lines.add("a"), "");
  EXPECT_EQ(lines.add("b\nc\nd"), "ab\nc\n");
  EXPECT_EQ(lines.add(""), "");
  EXPECT_EQ(lines.add("\n"), "d\n");
  EXPECT_EQ(lines.rest(true), "");
  EXPECT_EQ(lines.add("e"), "");
  EXPECT_EQ(lines.rest(true), "e\n");
  EXPECT_EQ(lines.add("f"), "");
  EXPECT_EQ(lines.rest(false), "");
  EXPECT_EQ(lines.add("\n"), "\n");
}

TEST(Lines, Tail) {
  Tail tail;
  EXPECT_EQ(tail.lines(), Words{});
  tail.add("\n\n");
  EXPECT_EQ(tail.lines(), Words{});
  tail.add("one\n\ntwo\n\n");
  EXPECT_EQ(tail.lines(), (Words{"one", "", "two"}));
  tail.add(std::string(100'000, 'x') + "\nend");
  ASSERT_EQ(tail.lines().size(), 2U);
  EXPECT_LE(tail.lines().front().size(), 8192U);
  EXPECT_EQ(tail.lines().back(), "end");
}

}  // namespace
}  // namespace fp8::launch
