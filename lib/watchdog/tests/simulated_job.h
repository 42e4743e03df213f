/// A job simulated in one thread: ranks with progress tables and stall detectors, and the messages between them.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fp8/watchdog/stall_detector.h"

namespace fp8::watchdog {

inline constexpr double kTimeout = 10;
inline constexpr std::uint64_t kAll = 0, kPart = 7;

class Job {
 public:
  explicit Job(int size) {
    std::vector<int> all;
    for (int r = 0; r < size; ++r) all.push_back(r);
    for (int r = 0; r < size; ++r) {
      ranks_.push_back(std::make_unique<Rank>(*this, r));
      ranks_.back()->progress->add_group(kAll, all);
    }
  }
  ProgressTable& progress(int rank) { return *shared_progress(rank); }
  const std::shared_ptr<ProgressTable>& shared_progress(int rank) {
    return ranks_[static_cast<std::size_t>(rank)]->progress;
  }
  /// The rank reaches the next collective and waits in it.
  void wait(int rank, const char* name = "all-reduce", std::size_t group = 0) {
    progress(rank).begin_wait(group, progress(rank).reach(group), name);
  }
  /// The rank starts to exchange the next message of rank `from` to rank `to`, one of which it is, and waits for it.
  void wait_for_message(int rank, int from, int to, std::size_t group = 0) {
    wait(rank, "message", progress(rank).message_group(group, from, to).first);
  }
  /// Stops the process of a rank, or continues it: a stopped rank neither works nor answers.
  void stop(int rank, bool stopped = true) { ranks_[static_cast<std::size_t>(rank)]->stopped = stopped; }
  /// Simulates `seconds`, or less if a rank reports a stall; returns the simulated seconds.
  double run(double seconds) {
    const double interval = ranks_.front()->detector.interval();
    const std::size_t reported = reports_.size();
    double at = 0;
    for (; at < seconds && reports_.size() == reported; at += interval) {
      for (const auto& r : ranks_) {
        r->unpolled += interval;
        if (r->stopped) continue;
        r->detector.poll(r->unpolled);
        r->unpolled = 0;
      }
    }
    return at;
  }
  /// The reports, one line each, as "rank: message".
  std::string reports() const {
    std::string text;
    for (const std::string& r : reports_) text += (text.empty() ? "" : "\n") + r;
    return text;
  }

 private:
  struct Rank final : Channel {
    Rank(Job& j, int n)
        : job(j), number(n), detector(*progress, *this, n, kTimeout, [this](const Stall& s) {
            job.reports_.push_back(std::to_string(number) + ": " + s.message());
          }) {}
    int size() const override { return static_cast<int>(job.ranks_.size()); }
    void send(int rank, const Message& message) override {
      job.ranks_[static_cast<std::size_t>(rank)]->inbox.emplace_back(number, message);
    }
    std::optional<std::pair<int, Message>> receive() override {
      if (inbox.empty()) return std::nullopt;
      const auto first = inbox.front();
      inbox.pop_front();
      return first;
    }
    Job& job;
    int number;
    std::shared_ptr<ProgressTable> progress = std::make_shared<ProgressTable>();
    std::deque<std::pair<int, Message>> inbox;
    bool stopped = false;
    double unpolled = 0;
    StallDetector detector;
  };
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::string> reports_;
};

}  // namespace fp8::watchdog
