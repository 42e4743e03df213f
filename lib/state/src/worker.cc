// An asynchronous task runs its pieces on a thread of low priority, and on its own thread once result() waits for it.
#include "fp8/state/worker.h"

#include <sched.h>

#include <utility>

#include "fp8/base/resources.h"

namespace fp8::state {
namespace {

// Gives this thread the policy SCHED_IDLE: it runs when no other thread of the core does, gets about 1/300 of a busy
// core, and is preempted at once. A step is as fast as its slowest thread, and with the usual policy the writer would
// take half of a core from one of them. An error is ignored: the save is correct without. On Linux each thread has a
// policy of its own.
void lower_priority() {
  const sched_param none{};
  (void)::sched_setscheduler(0, SCHED_IDLE, &none);
}

}  // namespace

LowPriorityThread::LowPriorityThread()
    : thread_(start_thread([this] {
        lower_priority();
        loop();
      })) {}

LowPriorityThread::~LowPriorityThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LowPriorityThread::run(const std::function<void()>& piece) {
  std::unique_lock lock(mutex_);
  piece_ = &piece;
  changed_.notify_all();
  changed_.wait(lock, [this] { return piece_ == nullptr; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void LowPriorityThread::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return piece_ != nullptr || stop_; });
    if (stop_) return;
    lock.unlock();
    std::exception_ptr error;
    try {
      (*piece_)();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = std::exchange(error, nullptr);
    piece_ = nullptr;
    changed_.notify_all();
  }
}

Worker::~Worker() {
  cancelled_ = awaited_ = true;
  if (thread_.joinable()) thread_.join();
}

void Worker::run_piece(const std::function<void()>& piece) {
  if (cancelled_) throw Error("given up");
  if (!awaited_) {
    low_priority_->run(piece);
  } else {
    piece();
  }
  ++pieces_;
}

void Worker::run(const Work& work) {
  try {
    text_ = work([this](const auto& piece) { run_piece(piece); });
  } catch (const std::exception&) {
    error_ = current_error();
  }
  ended_ = true;
}

void Worker::start(bool async, Work work) {
  ended_ = false;
  awaited_ = !async;
  if (!async) return run(work);
  if (!low_priority_) low_priority_.emplace();  // kept, because its end would have to be waited for
  thread_ = start_thread([this, task = std::move(work)] { run(task); });
}

std::string Worker::result() {
  awaited_ = true;
  if (thread_.joinable()) thread_.join();
  const std::optional<Error> error = std::exchange(error_, std::nullopt);
  std::string text = std::exchange(text_, {});
  if (error) throw Error(*error);
  return text;
}

}  // namespace fp8::state
