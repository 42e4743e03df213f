/// Requests to stop: SIGUSR1 and SIGTERM wait until the tool looks for them where it can stop cleanly.
#pragma once

#include <csignal>

namespace fp8::cli {

/// Holds USR1 and TERM back while it lives, from threads that start meanwhile too: so make one before there are any.
/// They are not handled, for no handler may run on a thread that multiplies: kernels that oneDNN 2.6 makes for f32 use
/// the stack pointer for other things, and what the system writes there to call a handler lands in the heap.
class StopSignals {
 public:
  /// Throws Error when the system refuses.
  StopSignals();
  /// Takes the requests that have come and lets later ones through as before.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Whether one of the signals has come. Any thread may ask.
  bool requested() const;

 private:
  sigset_t both_{}, before_{};
};

}  // namespace fp8::cli
