/// A thread that asks for another what may never be answered, such as a driver that hangs: the other waits a moment for
/// it and goes on. Private to comm.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace fp8::comm {

/// See the top of this file. Of one thread that asks.
class TimedCall {
 public:
  /// Waits `patience` seconds at most. The thread begins with the first work.
  explicit TimedCall(double patience) : patience_(patience) {}
  /// Waits for what is under way.
  ~TimedCall();
  TimedCall(const TimedCall&) = delete;
  TimedCall& operator=(const TimedCall&) = delete;
  /// Does `work`, which throws nothing, and returns whether it ended in time. What did not goes on; until it has ended
  /// nothing else begins, and the answer is false.
  bool run(std::function<void()> work);

 private:
  void loop();
  bool free_soon(std::unique_lock<std::mutex>& lock);

  double patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool busy_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace fp8::comm
