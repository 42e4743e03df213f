// The table is guarded by one mutex: locking it takes far less time than a collective.
#include "fp8/watchdog/progress_table.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>

#include "fp8/base/digest.h"

namespace fp8::watchdog {
namespace {

// Equal for the same path on all ranks, and for no other path, as far as 64 bits go.
std::uint64_t key_of(std::initializer_list<std::uint64_t> path) {
  return digest_of(std::as_bytes(std::span(path.begin(), path.size()))).lo;
}

}  // namespace

std::size_t ProgressTable::add_group(std::uint64_t key, std::vector<int> members, std::string name) {
  const std::lock_guard lock(mutex_);
  groups_.push_back({key, std::move(members), std::move(name), ""});
  return groups_.size() - 1;
}

std::pair<std::size_t, std::uint64_t> ProgressTable::add_derived_group(std::size_t group) {
  const std::lock_guard lock(mutex_);
  Group& parent = groups_.at(group);
  // The last element differs from that of every key that comm::Communicator::split() makes, which is a color.
  const std::uint64_t key = key_of({parent.key, ++parent.derived, ~std::uint64_t{0}});
  Group derived{key, parent.members, parent.name, ""};
  groups_.push_back(std::move(derived));
  return {groups_.size() - 1, key};
}

std::pair<std::size_t, std::uint64_t> ProgressTable::message_group(std::size_t group, int from, int to) {
  const std::lock_guard lock(mutex_);
  const Group& parent = groups_.at(group);
  const std::uint64_t key =
      key_of({parent.key, static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), ~std::uint64_t{1}});
  if (const Group* found = find(key)) return {static_cast<std::size_t>(found - groups_.data()), key};
  const int sender = parent.members.at(static_cast<std::size_t>(from));
  const int receiver = parent.members.at(static_cast<std::size_t>(to));
  Group pair{
      key, {sender, receiver}, parent.name, " from rank " + rank_text(sender) + " to rank " + rank_text(receiver)};
  groups_.push_back(std::move(pair));
  return {groups_.size() - 1, key};
}

std::int64_t ProgressTable::reach(std::size_t group) {
  const std::lock_guard lock(mutex_);
  return ++groups_.at(group).reached;
}

void ProgressTable::set_hosts(std::vector<std::string> hosts) {
  const std::lock_guard lock(mutex_);
  hosts_ = std::move(hosts);
}

std::vector<std::string> ProgressTable::hosts() const {
  const std::lock_guard lock(mutex_);
  return hosts_;
}

std::string ProgressTable::text_of_rank(int rank) const {
  const std::lock_guard lock(mutex_);
  return rank_text(rank);
}

std::string ProgressTable::text_of_rank(std::size_t group, int rank) const {
  const std::lock_guard lock(mutex_);
  return rank_text(groups_.at(group).members.at(static_cast<std::size_t>(rank)));
}

std::string ProgressTable::rank_text(int rank) const {
  const std::string number = std::to_string(rank);
  return hosts_.empty() ? number : number + " (" + hosts_.at(static_cast<std::size_t>(rank)) + ")";
}

std::string ProgressTable::text_of(const Group& group, std::int64_t number, const char* name) {
  return name + (" " + std::to_string(number)) + (group.name.empty() ? "" : " of " + group.name) + group.ends;
}

std::string ProgressTable::text_of(std::size_t group, std::int64_t number, const char* name) const {
  const std::lock_guard lock(mutex_);
  return text_of(groups_.at(group), number, name);
}

void ProgressTable::begin_wait(std::size_t group, std::int64_t number, const char* name) {
  const std::lock_guard lock(mutex_);
  pending_ = PendingCollective{groups_.at(group).key, number, name, ++last_wait_id_};
  wait_begun_ = Clock::now();
}

void ProgressTable::end_wait() {
  const std::lock_guard lock(mutex_);
  pending_.reset();
  waited_ += seconds_since(wait_begun_);
}

double ProgressTable::waited_seconds() const {
  const std::lock_guard lock(mutex_);
  return waited_;
}

void ProgressTable::begin_local_work() {
  const std::lock_guard lock(mutex_);
  ++local_work_;
}

void ProgressTable::end_local_work() {
  const std::lock_guard lock(mutex_);
  --local_work_;
}

void ProgressTable::set_watched_work(const WatchedWork* work) {
  const std::lock_guard lock(mutex_);
  work_ = work;
}

void ProgressTable::set_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void ProgressTable::set_contents(const std::string& text) {
  const std::lock_guard lock(mutex_);
  contents_ = text;
}

void ProgressTable::add_source(AsyncCollectives* source) {
  const std::lock_guard lock(mutex_);
  sources_.push_back(source);
}

void ProgressTable::remove_source(AsyncCollectives* source) {
  const std::lock_guard lock(mutex_);
  std::erase(sources_, source);
}

ProgressTable::Snapshot ProgressTable::snapshot() const {
  const std::lock_guard lock(mutex_);
  Snapshot s{{}, last_wait_id_, local_work_ > 0, step_};
  if (work_ != nullptr) s.work = WorkProgress{work_->name(), work_->count()};
  std::vector<PendingCollective> pending;
  if (pending_) pending.push_back(*pending_);
  for (AsyncCollectives* source : sources_) {
    // Every source is read, also while the host waits, because oldest() throws the asynchronous errors.
    std::vector<PendingCollective> oldest = source->oldest();
    if (pending.empty()) pending = std::move(oldest);
  }
  for (const PendingCollective& p : pending) {
    if (const Group* group = find(p.group))
      s.pending.push_back(
          {p, text_of(*group, p.number, p.name) + (contents_.empty() ? "" : ": " + contents_), group->members});
  }
  return s;
}

std::int64_t ProgressTable::reached(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  for (AsyncCollectives* source : sources_) {
    if (const auto count = source->reached(key)) return *count;
  }
  const Group* group = find(key);
  return group != nullptr ? group->reached : 0;
}

void ProgressTable::abort() noexcept {
  const std::lock_guard lock(mutex_);
  for (AsyncCollectives* source : sources_) source->abort();
}

// The newest group with this key: a group that is made again is counted from 0 on all its ranks.
const ProgressTable::Group* ProgressTable::find(std::uint64_t key) const {
  const auto it = std::find_if(groups_.rbegin(), groups_.rend(), [&](const Group& g) { return g.key == key; });
  return it != groups_.rend() ? &*it : nullptr;
}

}  // namespace fp8::watchdog
