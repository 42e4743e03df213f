/// Collectives that a device has been given and has not finished, as a watchdog sees them: in order, each with when it
/// was given. Private to comm. Knows neither CUDA nor threads' lives: whether one is done is asked through a function.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "fp8/comm/comm.h"

namespace fp8::comm {

/// Used by the thread that gives work and by the one that watches it.
class Flight {
 public:
  /// Notes a collective; `done` may be asked from either thread.
  void add(const char* name, std::function<bool()> done);
  /// Lets go of what is done. `elapsed` seconds have gone by since the last call, more than twice `pace` of which do
  /// not count: this process did not run. A Stall when the oldest one has been waiting for `timeout` seconds.
  std::optional<Stall> look(double elapsed, double pace, double timeout);
  /// The step that messages name.
  void at_step(std::int64_t step);
  /// The oldest collective that is not done, and how many-th it is; empty and 0 where there is none.
  Stall oldest();

 private:
  struct Item {
    const char* name;
    std::int64_t count;
    std::function<bool()> done;
  };
  Stall oldest_locked() const;
  std::mutex mutex_;
  std::deque<Item> items_;
  std::int64_t count_ = 0, step_ = -1;
  double waiting_ = 0;  // seconds that the oldest has been the oldest
};

}  // namespace fp8::comm
