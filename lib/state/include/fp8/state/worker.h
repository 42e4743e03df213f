/// Tasks of one thread in pieces: in the caller's thread, or in the background at the lowest priority. What a save
/// writes is in saver.h.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "fp8/base/error.h"
#include "fp8/base/file.h"

namespace fp8::state {

/// A thread of the lowest priority (SCHED_IDLE) that runs pieces for another thread.
class LowPriorityThread {
 public:
  /// Throws Error when no thread can be started.
  LowPriorityThread();
  ~LowPriorityThread();
  LowPriorityThread(const LowPriorityThread&) = delete;
  LowPriorityThread& operator=(const LowPriorityThread&) = delete;
  /// Runs `piece` on the thread, waits for its end and throws what it throws.
  void run(const std::function<void()>& piece);

 private:
  void loop();
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* piece_ = nullptr;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

/// Runs one task at a time, asynchronous or in the caller's thread. An asynchronous task runs its pieces at the lowest
/// priority, and at the usual one while result() waits for it: a process without privileges can lower the priority of a
/// thread but not raise it, so there is a thread for each. All members are called from one thread.
class Worker {
 public:
  /// A task returns a text, or throws Error. It runs each of its long operations by `runner`, which throws Error when
  /// the task is cancelled. Operations outside of `runner` are not counted in pieces() and cannot be cancelled.
  using Work = std::function<std::string(const PieceRunner& runner)>;
  Worker() = default;
  /// Cancels the task and waits for its end.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Starts a task after the result() of the one before. Throws Error when no thread can be created.
  void start(bool async, Work work);
  /// Whether a task runs, so that result() would wait.
  bool busy() const { return thread_.joinable() && !ended_.load(); }
  /// Waits for the end of the task; returns its text or throws its error. Without a task: "".
  std::string result();
  /// Number of finished pieces, of all tasks.
  const std::atomic<std::uint64_t>& pieces() const { return pieces_; }

 private:
  void run(const Work& work);
  void run_piece(const std::function<void()>& piece);
  std::optional<LowPriorityThread> low_priority_;  // thread, which exists from the first asynchronous task on
  std::thread thread_;
  std::atomic<bool> cancelled_ = false, ended_ = false, awaited_ = false;
  std::atomic<std::uint64_t> pieces_ = 0;
  std::string text_;
  std::optional<Error> error_;
};

}  // namespace fp8::state
