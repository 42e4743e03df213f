/// A job that is played in one thread: ranks with their tables and watchdogs, and the messages between these.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stall_detector.h"

namespace fp8::comm {

inline constexpr double kTimeout = 10;
inline constexpr std::uint64_t kAll = 0, kPart = 7;

/// The ranks of a job, their tables, and the messages between them.
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
    progress(rank).wait(group, progress(rank).reach(group), name);
  }
  /// From now on the rank neither works nor answers; or it does again.
  void stop(int rank, bool stopped = true) { ranks_[static_cast<std::size_t>(rank)]->stopped = stopped; }
  /// Lets time go by, or until somebody speaks; returns seconds.
  double run(double seconds) {
    const double pace = ranks_.front()->detector.pace();
    double at = 0;
    for (; at < seconds && heard_.empty(); at += pace) {
      for (const auto& r : ranks_) {
        r->gone_by += pace;
        if (r->stopped) continue;
        r->detector.tick(r->gone_by);
        r->gone_by = 0;
      }
    }
    return at;
  }
  /// What was said, as "rank: words"; empty: nothing.
  std::string heard() const {
    std::string text;
    for (const std::string& h : heard_) text += (text.empty() ? "" : "\n") + h;
    return text;
  }

 private:
  struct Rank final : Channel {
    Rank(Job& j, int n)
        : job(j), number(n), detector(*progress, *this, n, kTimeout, [this](const Stall& s) {
            job.heard_.push_back(std::to_string(number) + ": " + s.message());
          }) {}
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
    double gone_by = 0;
    StallDetector detector;
  };
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::string> heard_;
};

}  // namespace fp8::comm
