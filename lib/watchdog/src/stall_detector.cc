// Peers are queried when nearly half of the timeout has passed, and a stall is reported at its end.
#include "fp8/watchdog/stall_detector.h"

#include <algorithm>
#include <bit>

#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::watchdog {
namespace {

constexpr double kMinInterval = 0.05, kMaxInterval = 1;  // seconds
constexpr double kPollsPerTimeout = 20;
constexpr double kFirstQuery = 0.45;  // share of the timeout after which peers are queried
constexpr double kSilence = 0.5;      // share of the timeout after which a peer does not answer
constexpr double kReporterDelay = 2;  // seconds that other ranks leave to the reporter

}  // namespace

std::string Stall::message() const {
  if (!error.empty()) return error;
  const std::string limit = format_short(timeout, 6);
  const std::string where = collective + " " + std::to_string(number) + (group.empty() ? "" : " of " + group) +
                            (step >= 0 ? " (step " + std::to_string(step) + ")" : "");
  if (ranks.empty()) return where + " did not end within " + limit + " s, although every rank has reached it";
  std::string who = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) who += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return who + " did not " + (responding ? "reach " : "answer in ") + where + " within " + limit + " s";
}

StallDetector::StallDetector(ProgressTable& table, Channel& channel, int rank, double timeout,
                             std::function<void(const Stall&)> on_stall)
    : table_(table),
      channel_(channel),
      rank_(rank),
      timeout_(timeout),
      interval_(std::clamp(timeout / kPollsPerTimeout, kMinInterval, kMaxInterval)),
      on_stall_(std::move(on_stall)) {}

bool StallDetector::has_activity(const Peer& p, Activity activity) const {
  return p.reply && p.reply->activity == static_cast<std::int64_t>(activity);
}

bool StallDetector::has_reached(const Peer& p) const { return p.reply && p.reply->reached >= pending_->number; }

bool StallDetector::is_silent(const Peer& p) const {
  return p.query_sent && p.unanswered_seconds >= timeout_ * kSilence;
}

void StallDetector::answer_queries() {
  while (const auto received = channel_.receive()) {
    const auto& [sender, message] = *received;
    const auto key = std::bit_cast<std::uint64_t>(message.group);
    if (message.is_query == 0) {
      const auto peer = peers_.find(sender);
      if (peer == peers_.end() || !pending_ || key != pending_->group) continue;
      peer->second.reply = message;
      peer->second.query_sent = false;
      if (has_activity(peer->second, Activity::local_work)) peer->second.late_seconds = timeout_ / 2;
      continue;
    }
    Activity activity = Activity::computing;
    try {
      const ProgressTable::Snapshot now = table_.snapshot();
      activity = now.pending ? Activity::waiting : now.local_work ? Activity::local_work : Activity::computing;
    } catch (const Error&) {
      // poll() reports the error.
    }
    channel_.send(sender, {0, message.group, table_.reached(key), static_cast<std::int64_t>(activity)});
  }
}

void StallDetector::query_peers(double elapsed) {
  for (auto& [rank, peer] : peers_) {
    if (peer.query_sent) {
      peer.unanswered_seconds += elapsed;
      continue;
    }
    peer.query_sent = true;
    peer.unanswered_seconds = 0;
    channel_.send(rank, {1, std::bit_cast<std::int64_t>(pending_->group), 0, 0});
  }
}

// Looks for the late ranks: first those that do not answer, then those that compute and have not reached the
// collective, then those that wait for another collective. The list is empty if all wait for the same collective, which
// does not end.
std::optional<Stall> StallDetector::find_stall(const ProgressTable::Snapshot& now) const {
  Stall s{{}, pending_->name, now.group_name, pending_->number, now.step, timeout_, true, ""};
  const auto select = [&](const auto& is_missing) {
    for (const auto& [rank, peer] : peers_) {
      if (is_missing(peer)) s.ranks.push_back(rank);
    }
    return !s.ranks.empty();
  };
  s.responding = false;
  if (select([&](const Peer& p) { return is_silent(p); })) return s;
  s.responding = true;
  // A query that was sent a short time ago may still be answered.
  if (select([&](const Peer& p) { return p.query_sent && p.unanswered_seconds > 2 * interval_; })) return std::nullopt;
  const auto late = [&](const Peer& p) { return p.reply && !has_reached(p) && p.late_seconds >= timeout_; };
  if (select([&](const Peer& p) { return late(p) && !has_activity(p, Activity::waiting); })) return s;
  if (select(late)) return s;
  const bool all = std::all_of(peers_.begin(), peers_.end(), [&](const auto& p) { return has_reached(p.second); });
  if (all && waited_ >= timeout_) return s;
  return std::nullopt;
}

// Whether this is the lowest rank that waits for the collective and answers.
bool StallDetector::is_reporter() const {
  return std::none_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    const auto& [rank, peer] = entry;
    return rank < rank_ && has_reached(peer) && has_activity(peer, Activity::waiting) && !is_silent(peer);
  });
}

// Whether the WatchedWork has made no progress for the timeout.
bool StallDetector::work_is_stuck(const ProgressTable::Snapshot& now, double elapsed) {
  work_idle_ = now.work && now.work == work_ ? work_idle_ + elapsed : 0;
  work_ = now.work;
  return work_idle_ >= timeout_;
}

void StallDetector::report_error(const std::string& message) {
  table_.abort();
  Stall stall;
  stall.error = "rank " + std::to_string(rank_) + ": " + message;
  on_stall_(stall);
}

void StallDetector::poll(double elapsed) {
  answer_queries();
  ProgressTable::Snapshot now;
  try {
    now = table_.snapshot();
  } catch (const Error& e) {
    return report_error(e.what());
  }
  const double counted = std::min(elapsed, 2 * interval_);
  if (work_is_stuck(now, counted))
    return report_error(work_->name + ": no progress within " + format_short(timeout_, 6) + " s");
  check_collective(now, counted);
}

void StallDetector::check_collective(const ProgressTable::Snapshot& now, double elapsed) {
  if (now.pending != pending_) {
    pending_ = now.pending;
    peers_.clear();
    waited_ = stalled_ = 0;
    if (pending_) {
      for (const int member : now.members) {
        if (member != rank_) peers_.emplace(member, Peer{});
      }
    }
    return;
  }
  if (!pending_) return;
  waited_ += elapsed;
  for (auto& [rank, peer] : peers_) peer.late_seconds += elapsed;
  if (waited_ < timeout_ * kFirstQuery) return;
  const std::optional<Stall> stall = find_stall(now);
  if (!stall) {
    stalled_ = 0;
    return query_peers(elapsed);
  }
  stalled_ += elapsed;
  if (!is_reporter() && stalled_ < kReporterDelay) return;
  table_.abort();
  on_stall_(*stall);
}

}  // namespace fp8::watchdog
