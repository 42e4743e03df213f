// One piece of work at a time, handed over under a lock.
#include "timed_call.h"

#include <chrono>
#include <utility>

namespace fp8::comm {

TimedCall::~TimedCall() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool TimedCall::free_soon(std::unique_lock<std::mutex>& lock) {
  return changed_.wait_for(lock, std::chrono::duration<double>(patience_), [this] { return !busy_; });
}

bool TimedCall::run(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  if (!free_soon(lock)) return false;
  work_ = std::move(work);
  busy_ = true;
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  changed_.notify_all();
  return free_soon(lock);
}

void TimedCall::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return busy_ || stop_; });
    if (!busy_) return;
    const std::function<void()> work = std::exchange(work_, {});
    lock.unlock();
    work();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace fp8::comm
