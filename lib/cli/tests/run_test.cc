// The frame of main: statuses, the error line, a checked standard output. Each case runs in a child process, because
// run() changes process-wide state.
#include "fp8/cli/run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <stdexcept>
#include <thread>

#include "fp8/base/file.h"
#include "fp8/cli/output.h"
#include "fp8/cli/signals.h"
#include "helpers.h"

namespace fp8::cli {
namespace {

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

std::string drained(int fd) {
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t n = 0; (n = ::read(fd, piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<std::size_t>(n));
  ::close(fd);
  return text;
}

// Runs the sample tool with `words` in a child process, which first calls `prepare`.
Outcome outcome(
    std::vector<std::string> words, const std::function<int(const Arguments&)>& body,
    const std::function<void()>& prepare = [] {}) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  if (::pipe(out.data()) != 0 || ::pipe(err.data()) != 0) throw Error("pipe");
  (void)std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(out[1], 1);
    ::dup2(err[1], 2);
    for (const int fd : {out[0], out[1], err[0], err[1]}) ::close(fd);
    prepare();
    words.insert(words.begin(), "fp8-sample");
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    ::_exit(run(static_cast<int>(argv.size()), argv.data(), sample(), body, {"HDF5 1.10.8", "oneDNN 2.7"}));
  }
  ::close(out[1]);
  ::close(err[1]);
  Outcome o;
  o.out = drained(out[0]);
  o.err = drained(err[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  o.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return o;
}

int fine(const Arguments& /*a*/) { return 0; }

TEST(Run, CallsTheBody) {
  const Outcome o = outcome({"m", "--steps", "4"}, [](const Arguments& a) {
    Output().line("steps " + std::to_string(a.integer("steps")));
    Output().json(json::object({{"loss", 0.5}}));
    return 1;
  });
  EXPECT_EQ(o.status, 1);
  EXPECT_EQ(o.out, "steps 4\n{\"loss\":0.5}\n");
  EXPECT_EQ(o.err, "");
}

TEST(Run, PrintsHelpVersionAndCompletion) {
  const auto never = [](const Arguments&) -> int { throw std::logic_error("called"); };
  Outcome o = outcome({"--help", "--nonsense"}, never);
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.err, "fp8-sample: --nonsense: unknown flag\n");
  o = outcome({"-h"}, never);
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, help(sample(), 80));
  o = outcome({"--version"}, never);
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, version_text("fp8-sample", {"HDF5 1.10.8", "oneDNN 2.7"}) + "\n");
  EXPECT_EQ(o.out.substr(0, 11 + version().size()), "fp8-sample " + version());
  EXPECT_NE(o.out.find(", HDF5 1.10.8, oneDNN 2.7\n"), std::string::npos);
  o = outcome({"--completion", "bash"}, never);
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, completion(sample(), "bash"));
  EXPECT_EQ(outcome({"--completion", "tcsh"}, never).err,
            "fp8-sample: --completion: 'tcsh' is not one of bash, zsh, fish\n");
}

TEST(Run, ErrorsAreOneSafeLine) {
  Outcome o = outcome({"m"}, [](const Arguments&) -> int { throw Error("a\x1b[2J\nb: broken", Exit::diverged); });
  EXPECT_EQ(o.status, 4);
  EXPECT_EQ(o.err, "fp8-sample: a\\x1b[2J\\x0ab: broken\n");
  o = outcome({"m"}, [](const Arguments&) -> int { throw std::bad_alloc(); });
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.err, "fp8-sample: out of memory\n");
  o = outcome({"m"}, [](const Arguments&) -> int { throw std::runtime_error("odd"); });
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.err, "fp8-sample: internal error: odd\n");
  o = outcome({}, fine);
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.err, "fp8-sample: MODEL: needed (see --help)\n");
}

TEST(Run, HintsOfErrorsAreFlags) {
  EXPECT_EQ(error_message(Error("x: damaged")), "x: damaged");
  EXPECT_EQ(error_message(Error("x: exists", {{"force", "to replace it"}})), "x: exists (use --force to replace it)");
  EXPECT_EQ(error_message(Error("no format", {{"from", "u16"}, {"vocab-size", ""}})),
            "no format (use --from u16, or --vocab-size)");
}

TEST(Run, OnlyRank0PrintsErrorsOfTheCommandLine) {
  const auto as_rank = [](const char* rank) { return [rank] { ::setenv("OMPI_COMM_WORLD_RANK", rank, 1); }; };
  Outcome o = outcome({"--bad"}, fine, as_rank("1"));
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.err, "");
  EXPECT_EQ(outcome({"--bad"}, fine, as_rank("0")).err, "fp8-sample: --bad: unknown flag\n");
  o = outcome({"--help"}, fine, as_rank("1"));
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, "");
}

void use(const char* path, int fd) {
  const int opened = ::open(path, O_WRONLY);
  ::dup2(opened, fd);
  ::close(opened);
}

TEST(Run, FullDiskBehindStandardOutput) {
  const auto to_full = [] { use("/dev/full", 1); };
  const std::string message = "fp8-sample: standard output: No space left on device\n";
  Outcome o = outcome(
      {"m"}, [](const Arguments&) { return Output().line("x"), 0; }, to_full);
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.err, message);
  o = outcome(
      {"m"}, [](const Arguments&) { return std::puts("x"), 0; }, to_full);
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.err, message);
  o = outcome({"--help"}, fine, to_full);
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.err, message);
  EXPECT_EQ(outcome({"m"}, fine, to_full).status, 0);  // nothing was written
}

TEST(Run, ClosedStandardOutput) {
  const Outcome o = outcome(
      {"m"}, [](const Arguments&) { return Output().line("x"), 0; }, [] { ::close(1); });
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.err, "fp8-sample: standard output: Bad file descriptor\n");
  // the descriptor is occupied: a file that is opened does not become standard error
  const Outcome kept = outcome(
      {"m"}, [](const Arguments&) { return File::open_read("/dev/null").fd() > 2 ? 0 : 1; },
      [] { ::close(0), ::close(1), ::close(2); });
  EXPECT_EQ(kept.status, 0);
}

void break_pipe() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) ::_exit(99);
  ::dup2(ends[1], 1);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Run, BrokenPipeEndsQuietly) {
  const auto endless = [](const Arguments&) -> int {
    for (;;) Output().line("x");
  };
  Outcome o = outcome({"m"}, endless, break_pipe);
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.err, "");
  o = outcome(
      {"m"}, [](const Arguments&) { return std::puts("x"), 0; }, break_pipe);
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.err, "");
  EXPECT_EQ(outcome({"--help"}, fine, break_pipe).status, 0);
}

// Whether a request is seen within a short time: a thread has to read it first.
bool soon(const StopSignals& stop) {
  for (int i = 0; i < 500 && !stop.requested(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return stop.requested();
}

TEST(StopSignals, AreRecordedUntilChecked) {
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT, SIGHUP}) {
    const Outcome o = outcome({"m"}, [signal](const Arguments&) {
      (void)std::signal(signal, SIG_DFL);  // independent of how these tests were started
      StopSignals stop({});
      stop.begin();
      if (stop.requested()) return 1;
      (void)::kill(::getpid(), signal);
      return soon(stop) && stop.requested() ? 0 : 2;
    });
    EXPECT_EQ(o.status, 0) << signal;
  }
}

// Threads have the signals blocked too, and the process until it ends: the child sends itself one after the lifetime.
TEST(StopSignals, StayBlocked) {
  const Outcome o = outcome({"m"}, [](const Arguments&) {
    {
      const StopSignals stop({});
      sigset_t blocked;
      std::thread([&] { (void)::pthread_sigmask(SIG_BLOCK, nullptr, &blocked); }).join();
      for (const int signal : {SIGUSR1, SIGTERM})
        if (sigismember(&blocked, signal) != 1) return 1;
      if (sigismember(&blocked, SIGQUIT) != 0) return 2;
    }
    (void)::kill(::getpid(), SIGTERM);
    return 75;
  });
  EXPECT_EQ(o.status, 75);
}

TEST(StopSignals, StayIgnoredIfIgnoredBefore) {
  const Outcome o = outcome({"m"}, [](const Arguments&) {
    for (const int signal : {SIGINT, SIGHUP}) (void)std::signal(signal, SIG_IGN);
    StopSignals stop({.early = [](int) { std::_Exit(3); }, .first = {}, .again = [] { std::_Exit(4); }});
    for (const int signal : {SIGINT, SIGHUP, SIGINT}) (void)::kill(::getpid(), signal);
    stop.begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (stop.requested()) return 1;
    (void)::kill(::getpid(), SIGTERM);
    return soon(stop) ? 0 : 2;
  });
  EXPECT_EQ(o.status, 0);
}

TEST(StopSignals, EndTheProcessEarlyOrWhenINTComesTwice) {
  const StopSignals::Hooks hooks{
      .early = [](int signal) { std::_Exit(signal); }, .first = [](int) {}, .again = [] { std::_Exit(130); }};
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::seconds(20)); };
  const Outcome early = outcome({"m"}, [&](const Arguments&) {
    const StopSignals stop(hooks);
    (void)::kill(::getpid(), SIGUSR1);
    pause();
    return 1;
  });
  EXPECT_EQ(early.status, SIGUSR1);
  const Outcome twice = outcome({"m"}, [&](const Arguments&) {
    (void)std::signal(SIGINT, SIG_DFL);
    StopSignals stop(hooks);
    stop.begin();
    for (const int signal : {SIGTERM, SIGUSR1, SIGHUP, SIGTERM, SIGINT}) {
      (void)::kill(::getpid(), signal);
      if (!soon(stop)) return 2;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    (void)::kill(::getpid(), SIGINT);
    pause();
    return 1;
  });
  EXPECT_EQ(twice.status, 130);
}

}  // namespace
}  // namespace fp8::cli
