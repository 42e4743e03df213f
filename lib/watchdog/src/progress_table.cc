// The table is guarded by one mutex: locking it takes far less time than a collective.
#include "fp8/watchdog/progress_table.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "fp8/base/digest.h"

namespace fp8::watchdog {

std::size_t ProgressTable::add_group(std::uint64_t key, std::vector<int> members, std::string name) {
  const std::lock_guard lock(mutex_);
  groups_.push_back({key, std::move(members), std::move(name)});
  return groups_.size() - 1;
}

std::pair<std::size_t, std::uint64_t> ProgressTable::add_derived_group(std::size_t group) {
  const std::lock_guard lock(mutex_);
  Group& parent = groups_.at(group);
  // The last element differs from that of every key that comm::Communicator::split() makes, which is a color.
  const std::array<std::uint64_t, 3> path{parent.key, ++parent.derived, ~std::uint64_t{0}};
  const std::uint64_t key = digest_of(std::as_bytes(std::span(path))).lo;
  Group derived{key, parent.members, parent.name};
  groups_.push_back(std::move(derived));
  return {groups_.size() - 1, key};
}

std::int64_t ProgressTable::reach(std::size_t group) {
  const std::lock_guard lock(mutex_);
  return ++groups_.at(group).reached;
}

void ProgressTable::begin_wait(std::size_t group, std::int64_t number, const char* name) {
  const std::lock_guard lock(mutex_);
  pending_ = PendingCollective{groups_.at(group).key, number, name, ++last_wait_id_};
}

void ProgressTable::end_wait() {
  const std::lock_guard lock(mutex_);
  pending_.reset();
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
  Snapshot s{pending_, {}, "", local_work_ > 0, step_};
  if (work_ != nullptr) s.work = WorkProgress{work_->name(), work_->count()};
  for (AsyncCollectives* source : sources_) {
    // Every source is read, also while the host waits, because oldest() throws the asynchronous errors.
    const std::optional<PendingCollective> oldest = source->oldest();
    if (!s.pending) s.pending = oldest;
  }
  if (s.pending) {
    if (const Group* group = find(s.pending->group)) {
      s.members = group->members;
      s.group_name = group->name;
    }
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
