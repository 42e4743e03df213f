// A queue of what is under way. A stream works in order, so that only its head can be late.
#include "flight.h"

#include <algorithm>

namespace fp8::comm {

void Flight::add(const char* name, std::function<bool()> done) {
  const std::lock_guard lock(mutex_);
  items_.push_back({name, ++count_, std::move(done)});
}

std::optional<Stall> Flight::look(double elapsed, double pace, double timeout) {
  const std::lock_guard lock(mutex_);
  bool moved = items_.empty();
  while (!items_.empty() && items_.front().done()) {
    items_.pop_front();
    moved = true;
  }
  waiting_ = moved ? 0 : waiting_ + std::min(elapsed, 2 * pace);
  if (items_.empty() || waiting_ < timeout) return std::nullopt;
  Stall stall = oldest_locked();
  stall.seconds = timeout;
  return stall;
}

void Flight::at_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

Stall Flight::oldest() {
  const std::lock_guard lock(mutex_);
  return oldest_locked();
}

Stall Flight::oldest_locked() const {
  Stall stall;
  stall.step = step_;
  if (items_.empty()) return stall;
  stall.collective = items_.front().name;
  stall.count = items_.front().count;
  return stall;
}

}  // namespace fp8::comm
