/// Monotonic time.
#pragma once

#include <chrono>

namespace fp8 {

/// Clock of durations; not affected by changes of the system time.
using Clock = std::chrono::steady_clock;

/// Seconds since `start`.
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace fp8
