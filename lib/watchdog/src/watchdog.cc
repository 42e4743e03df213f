// The threads of Watchdog and StartupWatch.
#include "fp8/watchdog/watchdog.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "fp8/base/clock.h"
#include "fp8/base/error.h"
#include "fp8/base/resources.h"
#include "fp8/base/text.h"

namespace fp8::watchdog {
namespace {

constexpr double kReportDelay = 0.1;  // seconds between the reports of two ranks that do not start
constexpr int kMaxDelays = 20;

}  // namespace

Watchdog::Watchdog(std::unique_ptr<Channel> channel, ProgressTable& table, int rank, double timeout,
                   std::function<void(const Stall&)> on_stall)
    : channel_(std::move(channel)),
      on_stall_(std::move(on_stall)),
      timeout_(timeout),
      detector_(table, *channel_, rank, timeout, on_stall_),
      thread_(start_thread([this] { run(); })) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Watchdog::run() {
  try {
    Clock::time_point last = Clock::now();
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::duration<double>(detector_.interval()), [&] { return stop_; })) {
      const Clock::time_point now = Clock::now();
      detector_.poll(std::chrono::duration<double>(now - last).count());
      last = now;
    }
    detector_.answer_queries();
  } catch (const Error& e) {
    Stall stall;
    stall.error = e.what();
    on_stall_(stall);
  }
}

StartupWatch::StartupWatch(double seconds, int rank, std::string name, const char* phase,
                           std::function<void(const Stall&)> on_stall)
    : seconds_(seconds), rank_(rank), name_(std::move(name)), phase_(phase), on_stall_(std::move(on_stall)) {
  thread_ = start_thread([this] { run(); });
}

StartupWatch::~StartupWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void StartupWatch::enter(const char* phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  waited_ = 0;
}

void StartupWatch::run() {
  const double interval = std::min(1.0, seconds_ / 8);
  const double limit = seconds_ + kReportDelay * std::min(rank_, kMaxDelays);
  std::unique_lock lock(mutex_);
  for (Clock::time_point last = Clock::now(); waited_ < limit;) {
    if (wake_.wait_for(lock, std::chrono::duration<double>(interval), [this] { return stop_; })) return;
    const Clock::time_point now = Clock::now();
    // More than twice the interval means that this process was stopped.
    waited_ += std::min(std::chrono::duration<double>(now - last).count(), 2 * interval);
    last = now;
  }
  Stall stall;
  stall.error = name_ + ": " + phase_ + " did not end within " + format_short(seconds_, 6) +
                " s: another rank has not started or is stopped";
  on_stall_(stall);
}

}  // namespace fp8::watchdog
