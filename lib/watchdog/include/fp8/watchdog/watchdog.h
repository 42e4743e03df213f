/// Threads that detect stalls of this process: Watchdog while the job runs, StartupWatch before.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "fp8/watchdog/stall_detector.h"

namespace fp8::watchdog {

/// A thread that polls a StallDetector from construction to destruction.
class Watchdog {
 public:
  /// Watches the rank with this number. `channel` connects it with the watchdogs of the other ranks, `timeout` is in
  /// seconds, and `on_stall` is called on the thread. `table` outlives it.
  Watchdog(std::unique_ptr<Channel> channel, ProgressTable& table, int rank, double timeout,
           std::function<void(const Stall&)> on_stall);
  /// Ends the thread without waiting for other ranks.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Seconds.
  double timeout() const { return timeout_; }

 private:
  void run();

  std::unique_ptr<Channel> channel_;
  std::function<void(const Stall&)> on_stall_;
  double timeout_;
  StallDetector detector_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

/// Detects that a job does not start, from before MPI is initialized until its Watchdog runs: a rank that does not
/// start, or is stopped, would make the others wait forever. When this rank is in the same phase for `seconds`,
/// `on_stall` is called on a thread of this object; it should end the job. Rank r waits min(r, 20) tenths of a second
/// longer, so that one rank reports the stall. Time in which this process was stopped does not count.
class StartupWatch {
 public:
  /// `name` is the rank in messages, as "rank 1". Begins with `phase`, a name in messages of static storage, as
  /// "MPI_Init". Throws Error if no thread can be started.
  StartupWatch(double seconds, int rank, std::string name, const char* phase,
               std::function<void(const Stall&)> on_stall);
  ~StartupWatch();
  StartupWatch(const StartupWatch&) = delete;
  StartupWatch& operator=(const StartupWatch&) = delete;
  /// Begins another phase, for which the time is counted from 0.
  void enter(const char* phase);

 private:
  void run();

  double seconds_;
  int rank_;
  std::string name_;
  const char* phase_;
  std::function<void(const Stall&)> on_stall_;
  double waited_ = 0;  // seconds in this phase
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace fp8::watchdog
