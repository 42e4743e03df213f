/// Runs a command and waits for it: its output passes through, requests to stop reach it as SIGUSR1, and nothing that
/// it started outlives a crash. No shell. Linux: signalfd, and orphans that come to the process which started the
/// command.
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

/// Holds back INT, TERM, USR1 and HUP while it lives, to be asked for; INT and HUP only where they were not ignored
/// before. Holds back CHLD as well, and makes this process the parent of orphans. One at a time, in the main thread,
/// before others start.
class Requests {
 public:
  /// Throws Error when the system refuses.
  Requests();
  /// Restores what was there before; requests that came late are forgotten.
  ~Requests();
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  /// Readable when a signal has come.
  int fd() const { return fd_; }
  /// Takes the signals that have come.
  void take();
  /// The signal that asked to stop first, 0 for none so far. Call take() first.
  int stop() const { return stop_; }
  /// How often SIGINT came, from a person at a keyboard.
  int interrupts() const { return interrupts_; }

 private:
  int fd_ = -1;
  int stop_ = 0;
  int interrupts_ = 0;
  int was_subreaper_ = 0;
  sigset_t before_{};
  struct sigaction child_before_ {};
};

/// "TERM" for SIGTERM, the number where it has no name.
std::string signal_name(int signal);

/// How a command ended.
struct Ended {
  int status = 0;                 ///< exit status; 0 when ended by a signal
  int signal = 0;                 ///< signal that ended it, 0 for none
  bool asked = false;             ///< whether it was asked to stop
  std::vector<std::string> said;  ///< last lines of its standard error, 20 at most
  std::exception_ptr lost;        ///< what `out` or `stopping` threw: the command was asked to stop because of it

  /// "status 1", "signal KILL".
  std::string how() const;
  /// Whether it ended by itself with that status.
  bool with(int wanted) const { return signal == 0 && status == wanted; }
};

/// What goes out while a command runs. All may be empty.
struct Streams {
  /// Whole lines of its standard output. A last line without newline gets one when the status is 0, and is left out
  /// otherwise: its writer was cut off.
  std::function<void(std::string_view)> out;
  /// Its standard error as it comes.
  std::function<void(std::string_view)> err;
  /// The signal that is being passed on to it as SIGUSR1.
  std::function<void(int signal)> stopping;
  /// How many processes the command left behind, which are now waited for.
  std::function<void(std::size_t)> waiting;
};

/// Runs `words`, the first being the program, looked for in PATH, in a process group of its own, with standard input
/// empty, SIGPIPE and SIGXFSZ as usual. File descriptors that are not close-on-exec are inherited. The first request to
/// stop sends SIGUSR1 to the command; the second SIGINT sends SIGTERM to its group, the third SIGKILL. When it ends
/// with another status than 0, 2, 3, 4 and 75, what it left behind is waited for, and killed after `patience`. Throws
/// Error `program: reason` when it cannot be started.
Ended run_command(const std::vector<std::string>& words, Requests& requests, const Streams& streams,
                  std::chrono::milliseconds patience);

}  // namespace fp8::launch
