/// Requests to stop: SIGUSR1 and SIGTERM set a flag, and the tool looks at it where it can stop cleanly.
#pragma once

#include <array>
#include <csignal>

namespace fp8::cli {

/// Catches USR1 and TERM while it lives; the handlers only set a flag, and interrupted system calls go on. One at a
/// time.
class StopSignals {
 public:
  /// Installs the handlers and forgets earlier requests. Throws Error when the system refuses.
  StopSignals();
  /// Restores what was there before.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Whether one of the signals has come.
  bool requested() const;
  /// The signal that came last, 0 for none.
  int signal() const;

 private:
  std::array<struct sigaction, 2> before_{};
};

}  // namespace fp8::cli
