/// Calls that may never return, such as those of a driver that hangs, made on a thread of their own.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace fp8::watchdog {

/// Runs one call at a time on its thread, and waits for it for a limited time. Used by one thread.
class TimedCall {
 public:
  /// Waits at most `seconds` for a call. The thread starts with the first call.
  explicit TimedCall(double seconds) : seconds_(seconds) {}
  /// Waits for the current call without a limit.
  ~TimedCall();
  TimedCall(const TimedCall&) = delete;
  TimedCall& operator=(const TimedCall&) = delete;
  /// Runs `call`, which must not throw; returns whether it ended in time. A call that did not end in time continues;
  /// until it ends, run() starts no other call and returns false.
  bool run(std::function<void()> call);

 private:
  void loop();
  bool wait_until_idle(std::unique_lock<std::mutex>& lock);

  double seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> call_;
  bool busy_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace fp8::watchdog
