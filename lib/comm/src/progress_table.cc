// Where the collectives of this process stand. A lock nobody else wants costs less than any collective.
#include "progress_table.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "fp8/base/digest.h"

namespace fp8::comm {

std::size_t ProgressTable::add_group(std::uint64_t key, std::vector<int> members) {
  const std::lock_guard lock(mutex_);
  groups_.push_back({key, std::move(members)});
  return groups_.size() - 1;
}

std::pair<std::size_t, std::uint64_t> ProgressTable::add_twin(std::size_t group) {
  const std::lock_guard lock(mutex_);
  Group& of = groups_.at(group);
  // No path of a split ends in this, see MpiCommunicator::split().
  const std::array<std::uint64_t, 3> path{of.key, ++of.twins, ~std::uint64_t{0}};
  const std::uint64_t key = digest_of(std::as_bytes(std::span(path))).lo;
  std::vector<int> members = of.members;
  groups_.push_back({key, std::move(members)});
  return {groups_.size() - 1, key};
}

std::int64_t ProgressTable::reach(std::size_t group) {
  const std::lock_guard lock(mutex_);
  return ++groups_.at(group).reached;
}

void ProgressTable::wait(std::size_t group, std::int64_t number, const char* name) {
  const std::lock_guard lock(mutex_);
  waiting_ = Waiting{groups_.at(group).key, number, name, ++serial_};
}

void ProgressTable::go_on() {
  const std::lock_guard lock(mutex_);
  waiting_.reset();
}

void ProgressTable::own_work(bool begins) {
  const std::lock_guard lock(mutex_);
  own_work_ += begins ? 1 : -1;
}

void ProgressTable::watch_work(const WatchedWork* work) {
  const std::lock_guard lock(mutex_);
  work_ = work;
}

void ProgressTable::at_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void ProgressTable::add_carrier(Carrier* carrier) {
  const std::lock_guard lock(mutex_);
  carriers_.push_back(carrier);
}

void ProgressTable::remove_carrier(Carrier* carrier) {
  const std::lock_guard lock(mutex_);
  std::erase(carriers_, carrier);
}

ProgressTable::View ProgressTable::look() const {
  const std::lock_guard lock(mutex_);
  View v{waiting_, {}, own_work_ > 0, step_};
  if (work_ != nullptr) v.work = Work{work_->what(), work_->count()};
  for (Carrier* c : carriers_) {
    const std::optional<Waiting> behind = c->oldest();  // an error is told whatever the host does
    if (!v.waiting) v.waiting = behind;
  }
  if (v.waiting) {
    if (const Group* group = find(v.waiting->group)) v.members = group->members;
  }
  return v;
}

std::int64_t ProgressTable::reached(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  for (Carrier* c : carriers_) {
    if (const auto come = c->come_to(key)) return *come;
  }
  const Group* group = find(key);
  return group != nullptr ? group->reached : 0;
}

void ProgressTable::abort() noexcept {
  const std::lock_guard lock(mutex_);
  for (Carrier* c : carriers_) c->abort();
}

// The newest of this key: a group that was made again counts anew on all its ranks.
const ProgressTable::Group* ProgressTable::find(std::uint64_t key) const {
  const auto it = std::find_if(groups_.rbegin(), groups_.rend(), [&](const Group& g) { return g.key == key; });
  return it != groups_.rend() ? &*it : nullptr;
}

}  // namespace fp8::comm
