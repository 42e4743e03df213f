// The caller passes one call at a time to the thread, under the mutex.
#include "fp8/watchdog/timed_call.h"

#include <chrono>
#include <utility>

#include "fp8/base/resources.h"

namespace fp8::watchdog {

TimedCall::~TimedCall() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool TimedCall::wait_until_idle(std::unique_lock<std::mutex>& lock) {
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds_), [this] { return !busy_; });
}

bool TimedCall::run(std::function<void()> call) {
  std::unique_lock lock(mutex_);
  if (!wait_until_idle(lock)) return false;
  call_ = std::move(call);
  busy_ = true;
  if (!thread_.joinable()) thread_ = start_thread([this] { loop(); });
  changed_.notify_all();
  return wait_until_idle(lock);
}

void TimedCall::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return busy_ || stop_; });
    if (!busy_) return;
    const std::function<void()> call = std::exchange(call_, {});
    lock.unlock();
    call();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace fp8::watchdog
