// Runs one command: an event loop over its two pipes and the signals of this process.
#include "fp8/launch/process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>

#include "fp8/base/clock.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/signals.h"
#include "fp8/base/text.h"
#include "lines.h"
#include "pipe.h"

namespace fp8::launch {
namespace {

constexpr int kMaxLateReads = 64;  // reads from a pipe after the end, since an orphan may still write to it

[[noreturn]] void fail(const std::string& what, int error) { throw_errno("command", what, error); }

// Owns the arguments of posix_spawn.
class Setup {
 public:
  Setup(int out, int err) {
    check(::posix_spawn_file_actions_init(&actions_));
    check(::posix_spawnattr_init(&attributes_));
    check(::posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0));
    check(::posix_spawn_file_actions_adddup2(&actions_, out, 1));
    check(::posix_spawn_file_actions_adddup2(&actions_, err, 2));
    sigset_t usual, none;
    ::sigemptyset(&usual);
    for (const int ignored : {SIGPIPE, SIGXFSZ})
      ::sigaddset(&usual, ignored);  // ignored by this process, which would be inherited
    ::sigemptyset(&none);
    check(::posix_spawnattr_setsigdefault(&attributes_, &usual));
    check(::posix_spawnattr_setsigmask(&attributes_, &none));
    check(::posix_spawnattr_setpgroup(&attributes_, 0));
    check(::posix_spawnattr_setflags(&attributes_,
                                     POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP));
  }
  ~Setup() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;

  // Starts `words`; returns the process id.
  pid_t spawn(std::vector<std::string> words) const {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t child = 0;
    const int error = ::posix_spawnp(&child, argv.front(), &actions_, &attributes_, argv.data(), environ);
    if (error == ENOENT) throw Error(words.front() + ": no such program");
    if (error != 0) throw_errno(words.front(), "cannot be run", error);
    return child;
  }

 private:
  static void check(int error) {
    if (error != 0) fail("cannot be set up", error);
  }
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

// Child processes of this process.
std::vector<pid_t> children() {
  const std::string self = std::to_string(::getpid());
  const std::string text = read_text_file("/proc/self/task/" + self + "/children", std::uint64_t{1} << 20U);
  std::vector<pid_t> found;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (const auto pid = parse_int64(std::string_view(text).substr(begin, end - begin)))
      found.push_back(static_cast<pid_t>(*pid));
    begin = end + 1;
  }
  return found;
}

// Time between two signals that ask the command to stop.
constexpr std::chrono::seconds kAskAgain{2};

// A running command.
class Running {
 public:
  Running(const std::vector<std::string>& words, Requests& requests, const Streams& streams,
          std::chrono::milliseconds patience)
      : requests_(requests),
        streams_(streams),
        patience_(patience),
        child_(Setup(out_.out.get(), err_.out.get()).spawn(words)) {
    out_.out.reset();
    err_.out.reset();
  }
  // After an exception the command must not keep running unsupervised.
  ~Running() {
    if (reaped_) return;
    (void)::kill(-child_, SIGKILL);
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  Ended wait() {
    while (!reaped_ || orphans_) turn();
    for (int i = 0; i < kMaxLateReads && read_out(); ++i) {
    }
    for (int i = 0; i < kMaxLateReads && read_err(); ++i) {
    }
    guarded([&] { pass(lines_.rest(ended_.with(0))); });
    ended_.said = tail_.lines();
    return std::move(ended_);
  }

 private:
  bool finished_well() const {
    return ended_.signal == 0 &&
           (ended_.status == 0 || (ended_.status >= 2 && ended_.status <= 4) || ended_.status == 75);
  }

  // Waits for output, a signal or the end of a child, and handles it.
  void turn() {
    std::array<pollfd, 3> ready = {
        {{requests_.fd(), POLLIN, 0}, {out_.in.get(), POLLIN, 0}, {err_.in.get(), POLLIN, 0}}};
    const bool timed = reaped_ || ended_.asked;
    const int n = ::poll(ready.data(), ready.size(), timed ? milliseconds_left() : -1);
    if (n < 0 && errno != EINTR) fail("cannot be watched", errno);
    if (ready[1].revents != 0) (void)read_out();
    if (ready[2].revents != 0) (void)read_err();
    requests_.take();
    reap();
    pass_signals();
    if (reaped_ && orphans_ && milliseconds_left() == 0) kill_orphans();
  }

  int milliseconds_left() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
  }

  // Reaps children that have ended; orphans of the command have become children of this process.
  void reap() {
    int status = 0;
    pid_t who = 0;
    while ((who = ::waitpid(-1, &status, WNOHANG)) > 0 || (who < 0 && errno == EINTR)) {
      if (who != child_) continue;
      reaped_ = true;
      if (WIFEXITED(status)) ended_.status = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) ended_.signal = WTERMSIG(status);
      deadline_ = Clock::now() + patience_;
    }
    if (who < 0 && errno != ECHILD) fail("cannot be waited for", errno);
    if (who < 0 && !reaped_) fail("was reaped elsewhere", ECHILD);
    const bool any = reaped_ && who == 0 && !finished_well();
    if (any && !orphans_ && streams_.waiting) guarded([&] { streams_.waiting(children().size()); });
    orphans_ = any;
  }

  void kill_orphans() {
    for (const pid_t orphan : children()) (void)::kill(orphan, SIGKILL);  // it may have ended already
    deadline_ = Clock::now() + std::chrono::milliseconds(100);  // their children become children of this process
  }

  // Sends SIGUSR1 to the command after a request to stop or a failed write of its output, and again until it ends:
  // mpirun loses a signal that arrives before its ranks exist.
  void pass_signals() {
    const bool wanted = requests_.stop() != 0 || ended_.lost;
    if (wanted && ended_.asked && !reaped_ && milliseconds_left() == 0) ask();
    if (wanted && !ended_.asked && !reaped_) {
      ended_.asked = true;
      ask();
      if (requests_.stop() != 0 && streams_.stopping) guarded([&] { streams_.stopping(requests_.stop()); });
    }
    if (requests_.interrupts() <= interrupts_) return;
    interrupts_ = requests_.interrupts();
    if (interrupts_ < 2) return;
    if (reaped_) {
      deadline_ = Clock::now();
    } else {
      send(-child_, interrupts_ == 2 ? SIGTERM : SIGKILL);
    }
  }

  void ask() {
    send(child_, SIGUSR1);
    deadline_ = Clock::now() + kAskAgain;
  }

  static void send(pid_t whom, int signal) {
    if (::kill(whom, signal) != 0 && errno != ESRCH) fail("cannot be signalled", errno);
  }

  // Calls `work` unless an earlier call threw; stores its exception.
  void guarded(const std::function<void()>& work) {
    if (ended_.lost) return;
    try {
      work();
    } catch (...) {  // a closed pipe throws a type that is not a std::exception
      ended_.lost = std::current_exception();
    }
  }

  void pass(std::string_view whole_lines) const {
    if (!whole_lines.empty() && streams_.out) streams_.out(whole_lines);
  }

  // Reads available bytes of a pipe; returns whether there were any.
  bool read_out() {
    const std::string_view bytes = out_.read();
    guarded([&] { pass(lines_.add(bytes)); });
    return !bytes.empty();
  }
  bool read_err() {
    const std::string_view bytes = err_.read();
    tail_.add(bytes);
    if (!bytes.empty() && streams_.err) streams_.err(bytes);
    return !bytes.empty();
  }

  Requests& requests_;
  const Streams& streams_;
  std::chrono::milliseconds patience_;
  Pipe out_, err_;
  pid_t child_;
  WholeLines lines_;
  Tail tail_;
  Ended ended_;
  Clock::time_point deadline_{};
  bool reaped_ = false;   // whether the command itself has been reaped
  bool orphans_ = false;  // whether processes of the command are still running
  int interrupts_ = 0;    // number of SIGINT handled
};

}  // namespace

std::string Ended::how() const {
  return signal != 0 ? "signal " + signal_name(signal) : "status " + std::to_string(status);
}

Ended run_command(const std::vector<std::string>& words, Requests& requests, const Streams& streams,
                  std::chrono::milliseconds patience) {
  if (words.empty()) throw Error("command: needed");
  return Running(words, requests, streams, patience).wait();
}

}  // namespace fp8::launch
