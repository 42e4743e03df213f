/// Runs a command without a shell and waits for it: forwards its output, sends it SIGUSR1 on a request to stop, and
/// after a crash waits for the processes that it started. Linux only (signalfd, PR_SET_CHILD_SUBREAPER).
#pragma once

#include <signal.h>

#include <chrono>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp8::launch {

/// Blocks INT, TERM, USR1, HUP and CHLD during its lifetime and reads them from a signalfd; INT and HUP only when they
/// were not ignored before. Makes this process the parent of orphaned descendants. Create one at a time, on the main
/// thread, before other threads start.
class Requests {
 public:
  /// Throws Error when a system call fails.
  Requests();
  /// Restores the previous signal state; discards pending requests.
  ~Requests();
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  /// Descriptor that is readable when a signal is pending.
  int fd() const { return fd_; }
  /// Reads the pending signals.
  void take();
  /// The first signal that requested a stop, 0 for none. Call take() first.
  int stop() const { return stop_; }
  /// Number of SIGINT received.
  int interrupts() const { return interrupts_; }

 private:
  int fd_ = -1;
  int stop_ = 0;
  int interrupts_ = 0;
  int was_subreaper_ = 0;
  sigset_t before_{};
  struct sigaction child_before_ {};
};

/// How a command ended.
struct Ended {
  int status = 0;                 ///< exit status; 0 when a signal ended it
  int signal = 0;                 ///< signal that ended it, 0 for none
  bool asked = false;             ///< whether SIGUSR1 was sent to stop it
  std::vector<std::string> said;  ///< stderr tail, at most 20 lines
  std::exception_ptr lost;        ///< exception of `out` or `stopping`, after which the command was stopped

  /// "status 1", "signal KILL".
  std::string how() const;
  /// Whether it exited with that status.
  bool with(int wanted) const { return signal == 0 && status == wanted; }
};

/// Callbacks while a command runs. All may be empty.
struct Streams {
  /// Whole lines of its standard output. A last line without a newline gets one when the status is 0, and is dropped
  /// otherwise, since it may be incomplete.
  std::function<void(std::string_view)> out;
  /// Its standard error, unbuffered.
  std::function<void(std::string_view)> err;
  /// Signal that requested the stop; the command receives SIGUSR1.
  std::function<void(int signal)> stopping;
  /// Number of processes that the command left running; run_command() waits for them.
  std::function<void(std::size_t)> waiting;
};

/// Runs the program words[0], searched in PATH, with the arguments `words`, in a new process group, with empty standard
/// input and the default action for SIGPIPE and SIGXFSZ. The command inherits descriptors without close-on-exec. The
/// first request to stop sends SIGUSR1 to the command; the second SIGINT sends SIGTERM to its process group, the third
/// SIGKILL. After a status other than 0, 2, 3, 4 and 75, waits for the processes that the command left running and
/// kills them after `patience`. Throws Error `program: reason` when the command cannot be started.
Ended run_command(const std::vector<std::string>& words, Requests& requests, const Streams& streams,
                  std::chrono::milliseconds patience);

}  // namespace fp8::launch
