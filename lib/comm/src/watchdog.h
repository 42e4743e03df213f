/// The thread that watches the collectives of a rank, and the messages between these threads over MPI. Private to comm.
/// Messages need MPI_THREAD_MULTIPLE: they are sent while the other thread is blocked in a collective. What it finds is
/// stall_detector.h's.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "fp8/comm/comm.h"
#include "mpi_c.h"
#include "stall_detector.h"

namespace fp8::comm {

/// A channel between the ranks of `comm`. Collective: it takes a communicator of its own.
std::unique_ptr<Channel> mpi_channel(MPI_Comm comm);

/// See the top of this file. Watches from construction to destruction.
class Watchdog {
 public:
  /// Of the rank with this number, with a channel to those of the other ranks. References outlive it.
  Watchdog(std::unique_ptr<Channel> channel, ProgressTable& progress, int rank, double timeout,
           std::function<void(const Stall&)> lost);
  /// Ends the thread, which does not wait for anyone.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Seconds.
  double timeout() const { return timeout_; }

 private:
  void run();

  std::unique_ptr<Channel> channel_;
  std::function<void(const Stall&)> lost_;
  double timeout_;
  StallDetector detector_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace fp8::comm
