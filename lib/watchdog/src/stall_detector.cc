// Peers are queried when a fifth of the timeout has passed, and a stall is reported at its end, or at twice the timeout
// if another rank may be the one that names the cause.
#include "fp8/watchdog/stall_detector.h"

#include <algorithm>
#include <bit>
#include <ranges>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::watchdog {
namespace {

constexpr double kMinInterval = 0.05, kMaxInterval = 1;  // seconds
constexpr double kPollsPerTimeout = 20;
constexpr double kFirstQuery = 0.2;   // share of the timeout after which peers are queried
constexpr double kSilence = 0.75;     // share of the timeout after which a peer does not answer
constexpr double kReporterDelay = 2;  // most seconds between the announcement of a rank and its report
constexpr double kQuiet = 10;         // seconds that a rank has to end the job after it announced its report

}  // namespace

std::string Stall::message() const {
  if (!error.empty()) return error;
  const std::string limit = format_short(timeout, 6);
  const std::string where = collective + (step >= 0 ? " (step " + std::to_string(step) + ")" : "");
  if (ranks.empty()) return where + " did not end within " + limit + " s, although every rank has reached it";
  std::string who = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) who += (i > 0 ? ", " : "") + ranks[i];
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

bool StallDetector::is_silent(const Peer& p) const {
  return p.query_sent && p.unanswered_seconds >= timeout_ * kSilence;
}

void StallDetector::answer_queries() {
  while (const auto received = channel_.receive()) {
    const auto& [sender, message] = *received;
    if (message.kind == Message::announcement) receive_announcement(sender);
    if (message.kind == Message::reply) receive_reply(sender, message);
    if (message.kind != Message::query) continue;
    Activity activity = Activity::computing;
    try {
      const ProgressTable::Snapshot now = table_.snapshot();
      activity = !now.pending.empty() ? Activity::waiting : now.local_work ? Activity::local_work : Activity::computing;
    } catch (const Error&) {
      // poll() reports the error.
    }
    const std::int64_t reached = table_.reached(std::bit_cast<std::uint64_t>(message.group));
    channel_.send(sender, {Message::reply, message.group, reached, static_cast<std::int64_t>(activity),
                           static_cast<std::int64_t>(computing_ * 1000)});
  }
}

void StallDetector::receive_reply(int sender, const Message& reply) {
  for (Part& part : parts_) {
    const auto peer = part.peers.find(sender);
    if (peer == part.peers.end() || std::bit_cast<std::uint64_t>(reply.group) != part.awaited.collective.group)
      continue;
    Peer& p = peer->second;
    p.reply = reply;
    p.query_sent = false;
    // A reply is about as old as the time between two calls of poll().
    if (!has_activity(p, Activity::waiting))
      p.late_seconds = std::min(p.late_seconds, static_cast<double>(reply.computing) / 1000 + interval_);
  }
}

void StallDetector::query_peers(double elapsed) {
  for (Part& part : parts_) {
    for (auto& [rank, peer] : part.peers) {
      if (peer.query_sent) {
        peer.unanswered_seconds += elapsed;
        continue;
      }
      peer.query_sent = true;
      peer.unanswered_seconds = 0;
      channel_.send(rank, {Message::query, std::bit_cast<std::int64_t>(part.awaited.collective.group), 0, 0, 0});
    }
  }
}

// Looks for the late ranks: first those that do not answer, then those that compute and have not reached the
// collective, then those that wait for another collective. The list is empty if all have reached the collective, which
// does not end. The last two are reported after twice the timeout, since such a peer may wait for a rank of another
// group that does not answer, which its own detector names.
std::optional<Stall> StallDetector::find_stall(const ProgressTable::Snapshot& now) const {
  Stall s{{}, parts_.front().awaited.text, now.step, timeout_, true, ""};
  const auto select = [&](const auto& is_missing) {
    for (const Part& part : parts_) {
      for (const auto& [rank, peer] : part.peers) {
        if (is_missing(part, peer)) s.ranks.push_back(table_.text_of_rank(rank));
      }
      if (s.ranks.empty()) continue;
      s.collective = part.awaited.text;
      return true;
    }
    return false;
  };
  s.responding = false;
  if (select([&](const Part&, const Peer& p) { return is_silent(p); })) return s;
  s.responding = true;
  // A query that was sent a short time ago may still be answered.
  if (select([&](const Part&, const Peer& p) { return p.query_sent && p.unanswered_seconds > 2 * interval_; }))
    return std::nullopt;
  const auto late = [&](double seconds, bool waits) {
    return select([&, seconds, waits](const Part& part, const Peer& p) {
      return p.reply && !part.has_reached(p) && p.late_seconds >= seconds &&
             has_activity(p, Activity::waiting) == waits;
    });
  };
  if (late(timeout_, false) || late(2 * timeout_, true)) return s;
  const bool all = !select([](const Part& part, const Peer& p) { return !part.has_reached(p); });
  if (all && waited_ >= 2 * timeout_) return s;
  return std::nullopt;
}

// Whether this is the lowest rank that waits for the collective and answers.
bool StallDetector::is_reporter() const {
  return std::all_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    return std::none_of(part.peers.begin(), part.peers.end(), [&](const auto& entry) {
      const auto& [rank, peer] = entry;
      return rank < rank_ && part.has_reached(peer) && has_activity(peer, Activity::waiting) && !is_silent(peer);
    });
  });
}

// Whether the WatchedWork has made no progress for the timeout.
bool StallDetector::work_is_stuck(const ProgressTable::Snapshot& now, double elapsed) {
  work_idle_ = now.work && now.work == work_ ? work_idle_ + elapsed : 0;
  work_ = now.work;
  return work_idle_ >= timeout_;
}

void StallDetector::receive_announcement(int sender) {
  if (!announced_ || sender < rank_) quiet_ = kQuiet;
}

void StallDetector::report_error(const std::string& message, double elapsed) {
  Stall stall;
  stall.error = "rank " + table_.text_of_rank(rank_) + ": " + message;
  report(stall, 0, elapsed);
}

// Called by each poll that finds a stall; announces it after `delay` seconds, and reports it when lower ranks that have
// announced theirs at the same time have had the time to report.
void StallDetector::report(const Stall& stall, double delay, double elapsed) {
  if (quiet_ > 0) return;
  stalled_ += elapsed;
  if (stalled_ < delay) return;
  if (!std::exchange(announced_, true)) {
    for (int rank = 0; rank < channel_.size(); ++rank) {
      if (rank != rank_) channel_.send(rank, {Message::announcement, 0, 0, 0, 0});
    }
  }
  if (stalled_ < delay + std::min(kReporterDelay, rank_ * interval_)) return;
  table_.abort();
  on_stall_(stall);
}

void StallDetector::poll(double elapsed) {
  const double counted = std::min(elapsed, 2 * interval_);
  quiet_ = std::max(0.0, quiet_ - counted);
  answer_queries();
  ProgressTable::Snapshot now;
  try {
    now = table_.snapshot();
  } catch (const Error& e) {
    return report_error(e.what(), counted);
  }
  const bool waited = !now.pending.empty() || std::exchange(waits_, now.waits) != now.waits;
  computing_ = waited ? 0 : now.local_work ? timeout_ / 2 : computing_ + counted;
  if (work_is_stuck(now, counted))
    return report_error(work_->name + ": no progress within " + format_short(timeout_, 6) + " s", counted);
  if (const std::optional<Stall> stall = check_collective(now, counted))
    return report(*stall, is_reporter() ? 0 : 2 * kReporterDelay, counted);
  stalled_ = 0;
  announced_ = false;
}

// The stall of the pending collectives, if there is one; queries the peers otherwise.
std::optional<Stall> StallDetector::check_collective(const ProgressTable::Snapshot& now, double elapsed) {
  if (!std::ranges::equal(now.pending, parts_, {}, {}, &Part::awaited)) {
    parts_.clear();
    waited_ = 0;
    for (const ProgressTable::Awaited& awaited : now.pending) {
      Part& part = parts_.emplace_back(Part{awaited, {}});
      for (const int member : awaited.members) {
        if (member != rank_) part.peers.emplace(member, Peer{});
      }
    }
    return std::nullopt;
  }
  if (parts_.empty()) return std::nullopt;
  waited_ += elapsed;
  for (Part& part : parts_) {
    for (auto& [rank, peer] : part.peers) peer.late_seconds += elapsed;
  }
  if (waited_ < timeout_ * kFirstQuery) return std::nullopt;
  std::optional<Stall> stall = find_stall(now);
  if (!stall) query_peers(elapsed);
  return stall;
}

}  // namespace fp8::watchdog
