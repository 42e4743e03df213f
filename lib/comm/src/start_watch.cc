// A thread that counts seconds while the rank waits for others that may never come.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "fp8/base/clock.h"
#include "fp8/base/text.h"
#include "fp8/comm/comm.h"

namespace fp8::comm {
namespace {

constexpr double kApart = 0.1;  // seconds between the calls of two ranks
constexpr int kMostApart = 20;

}  // namespace

struct StartWatch::State {
  State(double limit, const char* at, std::function<void(const Stall&)> call)
      : seconds(limit), point(at), lost(std::move(call)), thread([this] { count(); }) {}
  ~State() {
    {
      const std::lock_guard lock(mutex);
      ended = true;
    }
    wake.notify_one();
    thread.join();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void count() {
    const double pace = std::min(1.0, seconds / 8);
    const double limit = seconds + kApart * std::min(job_rank(), kMostApart);
    std::unique_lock lock(mutex);
    for (Clock::time_point last = Clock::now(); waited < limit;) {
      if (wake.wait_for(lock, std::chrono::duration<double>(pace), [this] { return ended; })) return;
      const Clock::time_point now = Clock::now();
      // More than twice the pace: this process did not run.
      waited += std::min(std::chrono::duration<double>(now - last).count(), 2 * pace);
      last = now;
    }
    Stall stall;
    stall.error = "rank " + std::to_string(job_rank()) + ": " + point + " did not end within " +
                  format_short(seconds, 6) + " s: another rank has not started or is stopped";
    lost(stall);
  }

  double seconds, waited = 0;
  const char* point;
  std::function<void(const Stall&)> lost;
  std::mutex mutex;
  std::condition_variable wake;
  bool ended = false;
  std::thread thread;
};

StartWatch::StartWatch(double seconds, const char* point, std::function<void(const Stall&)> lost) {
  if (!launched() || seconds <= 0) return;
  try {
    state_ = std::make_unique<State>(seconds, point, std::move(lost));
  } catch (const std::system_error& e) {
    throw Error(std::string("no thread for the watchdog: ") + e.code().message());
  }
}

StartWatch::~StartWatch() = default;

void StartWatch::at(const char* point) {
  if (state_ == nullptr) return;
  const std::lock_guard lock(state_->mutex);
  state_->point = point;
  state_->waited = 0;
}

}  // namespace fp8::comm
