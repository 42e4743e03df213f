// Questions from half of the timeout on, the verdict at its end.
#include "stall_detector.h"

#include <algorithm>
#include <bit>

#include "fp8/base/text.h"

namespace fp8::comm {
namespace {

constexpr double kSlowest = 1, kFastest = 0.05, kTicks = 20;  // seconds, seconds, ticks in a timeout
constexpr double kFirstQuestion = 0.45, kSilence = 0.5;       // shares of the timeout
constexpr double kPatience = 2;                               // seconds that a rank gives the one that speaks

}  // namespace

std::string Stall::message() const {
  if (!error.empty()) return error;
  const std::string limit = format_short(seconds, 6);
  const std::string where =
      collective + " " + std::to_string(count) + (step >= 0 ? " (step " + std::to_string(step) + ")" : "");
  if (ranks.empty()) return where + " did not end within " + limit + " s, although every rank has reached it";
  std::string who = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) who += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return who + " did not " + (answers ? "reach " : "answer in ") + where + " within " + limit + " s";
}

StallDetector::StallDetector(ProgressTable& progress, Channel& channel, int rank, double timeout,
                             std::function<void(const Stall&)> lost)
    : progress_(progress),
      channel_(channel),
      rank_(rank),
      timeout_(timeout),
      pace_(std::clamp(timeout / kTicks, kFastest, kSlowest)),
      lost_(std::move(lost)) {}

bool StallDetector::doing(const Peer& p, Doing d) const {
  return p.said && p.said->doing == static_cast<std::int64_t>(d);
}

bool StallDetector::reached(const Peer& p) const { return p.said && p.said->reached >= wait_->number; }

void StallDetector::answer() {
  while (const auto got = channel_.receive()) {
    const auto& [from, message] = *got;
    const auto key = std::bit_cast<std::uint64_t>(message.group);
    if (message.question == 0) {
      const auto peer = peers_.find(from);
      if (peer == peers_.end() || !wait_ || key != wait_->group) continue;
      peer->second.said = message;
      peer->second.asked = false;
      if (doing(peer->second, Doing::own_work)) peer->second.late = timeout_ / 2;
      continue;
    }
    Doing now = Doing::computing;
    try {
      const ProgressTable::View view = progress_.look();
      now = view.waiting ? Doing::waiting : view.own_work ? Doing::own_work : Doing::computing;
    } catch (const Error&) {
      // tick() will speak of it.
    }
    channel_.send(from, {0, message.group, progress_.reached(key), static_cast<std::int64_t>(now)});
  }
}

void StallDetector::ask(double elapsed) {
  for (auto& [rank, peer] : peers_) {
    if (peer.asked) {
      peer.silent += elapsed;
      continue;
    }
    peer.asked = true;
    peer.silent = 0;
    channel_.send(rank, {1, std::bit_cast<std::int64_t>(wait_->group), 0, 0});
  }
}

// Those who do not answer; else those who compute and have not come; else those who wait elsewhere; else nobody.
std::optional<Stall> StallDetector::judge(const ProgressTable::View& view) const {
  Stall s{{}, wait_->name, wait_->number, view.step, timeout_, true, ""};
  const auto pick = [&](const auto& guilty) {
    for (const auto& [rank, peer] : peers_) {
      if (guilty(peer)) s.ranks.push_back(rank);
    }
    return !s.ranks.empty();
  };
  s.answers = false;
  if (pick([&](const Peer& p) { return p.asked && p.silent >= timeout_ * kSilence; })) return s;
  s.answers = true;
  if (pick([&](const Peer& p) { return p.asked && p.silent > 2 * pace_; })) return std::nullopt;  // not known yet
  const auto late = [&](const Peer& p) { return p.said && !reached(p) && p.late >= timeout_; };
  if (pick([&](const Peer& p) { return late(p) && !doing(p, Doing::waiting); })) return s;
  if (pick(late)) return s;
  const bool all = std::all_of(peers_.begin(), peers_.end(), [&](const auto& p) { return reached(p.second); });
  if (all && waited_ >= timeout_) return s;
  return std::nullopt;
}

// The lowest of the ranks that wait as this one does, and answer.
bool StallDetector::speaks() const {
  return std::none_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    const auto& [rank, peer] = entry;
    return rank < rank_ && reached(peer) && doing(peer, Doing::waiting) &&
           !(peer.asked && peer.silent >= timeout_ * kSilence);
  });
}

// Whether work that must make progress has made none for the timeout.
bool StallDetector::stuck(const ProgressTable::View& view, double elapsed) {
  idle_ = view.work && view.work == work_ ? idle_ + elapsed : 0;
  work_ = view.work;
  return idle_ >= timeout_;
}

void StallDetector::tick(double elapsed) {
  answer();
  ProgressTable::View view;
  try {
    view = progress_.look();
  } catch (const Error& e) {
    progress_.abort();
    return lost_({{}, "", 0, view.step, timeout_, true, "rank " + std::to_string(rank_) + ": " + e.what()});
  }
  const double counted = std::min(elapsed, 2 * pace_);
  if (stuck(view, counted)) {
    progress_.abort();
    Stall stall;
    stall.error = "rank " + std::to_string(rank_) + ": " + work_->what + ": no progress within " +
                  format_short(timeout_, 6) + " s";
    return lost_(stall);
  }
  if (view.waiting != wait_) {
    wait_ = view.waiting;
    peers_.clear();
    waited_ = overdue_ = 0;
    if (wait_) {
      for (const int member : view.members) {
        if (member != rank_) peers_.emplace(member, Peer{});
      }
    }
    return;
  }
  if (!wait_) return;
  waited_ += counted;
  for (auto& [rank, peer] : peers_) peer.late += counted;
  if (waited_ < timeout_ * kFirstQuestion) return;
  const std::optional<Stall> stall = judge(view);
  if (!stall) {
    overdue_ = 0;
    return ask(counted);
  }
  overdue_ += counted;
  if (!speaks() && overdue_ < kPatience) return;
  progress_.abort();
  lost_(*stall);
}

}  // namespace fp8::comm
