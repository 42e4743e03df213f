/// Requests to stop: USR1, TERM, INT and HUP are recorded, and the tool checks for them where it can stop cleanly.
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace fp8::cli {

/// Blocks the signals from its construction on, also in threads that start later: create it before any thread. They
/// stay blocked after its lifetime, until the process ends: when the first rank has ended with a status that is not 0,
/// such as 75, srun(1) sends TERM to the others, which must end with that status too. A thread of its own reads the
/// signals from a descriptor (signalfd); there is no signal handler, since the f32 kernels that oneDNN 2.6 generates
/// use the stack pointer as a general register, and the frame that the kernel pushes for a handler would overwrite the
/// heap. Signals that are ignored at construction, as after nohup or in a background job of a shell, stay ignored.
class StopSignals {
 public:
  /// Called for each signal by the thread that reads them, one at a time.
  struct Hooks {
    std::function<void(int signal)> early;  ///< received before begin(); may end the process
    std::function<void(int signal)> first;  ///< the first one after begin()
    std::function<void()> again;            ///< INT, and not for the first time; should end the process
  };

  /// Throws Error if the system refuses.
  explicit StopSignals(Hooks hooks);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Hooks::early is not called after this returns; waits for a call in progress.
  void begin();
  /// Whether one of the signals was received. Callable from any thread.
  bool requested() const { return requested_; }

 private:
  void listen();
  void heard(int signal);

  Hooks hooks_;
  int signals_ = -1, end_ = -1;  // descriptors
  std::mutex mutex_;             // guards the members below
  bool begun_ = false;
  int interrupts_ = 0;
  std::atomic<bool> requested_ = false;
  std::thread thread_;
};

/// Ends the process as `signal` does by default, without the files that it was writing; for StopSignals::Hooks.
void end_by_signal(int signal);

}  // namespace fp8::cli
