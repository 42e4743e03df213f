// A stream runs its collectives in order, so that only the first one that has not ended can stall.
#include "fp8/watchdog/in_flight_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "fp8/base/error.h"

namespace fp8::watchdog {

InFlightQueue::InFlightQueue(std::shared_ptr<ProgressTable> table, std::size_t group, Device device)
    : table_(std::move(table)), device_(std::move(device)), query_(device_.reply_seconds) {
  std::tie(group_, key_) = table_->add_derived_group(group);
  table_->add_source(this);
}

InFlightQueue::~InFlightQueue() { table_->remove_source(this); }

// This function also removes the items that are done; no other function removes items.
void InFlightQueue::add(const char* name, std::function<bool()> begun, std::function<bool()> done) {
  const std::int64_t number = table_->reach(group_);  // before mutex_ is locked: snapshot() locks in the other order
  std::unique_lock lock(mutex_);
  while (!items_.empty()) {
    const std::shared_ptr<const Item> first = items_.front();
    lock.unlock();
    const bool first_done = first->done();
    lock.lock();
    if (!first_done) break;
    items_.pop_front();
  }
  items_.push_back(std::make_shared<const Item>(Item{name, number, std::move(begun), std::move(done)}));
  queued_ = number;
}

const InFlightQueue::Item* InFlightQueue::first_not_done() const {
  const auto at = std::find_if(items_.begin(), items_.end(), [&](const auto& item) { return item->number > done_; });
  return at != items_.end() ? at->get() : nullptr;
}

void InFlightQueue::query_device() {
  std::unique_lock lock(mutex_);
  const std::vector<std::shared_ptr<const Item>> items(items_.begin(), items_.end());
  const std::int64_t queued = queued_;
  lock.unlock();
  try {
    device_.check();
    auto at = items.begin();
    while (at != items.end() && (*at)->done()) ++at;
    const std::int64_t done = at != items.end() ? (*at)->number - 1 : queued;
    std::int64_t begun = done;
    std::optional<PendingCollective> pending;
    if (at != items.end() && (*at)->begun()) pending = PendingCollective{key_, (*at)->number, (*at)->name, 0};
    for (; at != items.end() && (*at)->begun(); ++at) begun = (*at)->number;
    lock.lock();
    done_ = done;
    begun_ = begun;
    pending_ = pending;
    error_.clear();
  } catch (const std::exception& e) {
    lock.lock();
    const Item* const first = first_not_done();
    error_ = e.what() + (first != nullptr ? std::string(" in ") + first->name + " " + std::to_string(first->number)
                                          : std::string());
  }
}

std::optional<PendingCollective> InFlightQueue::oldest() {
  const bool answered = query_.run([this] { query_device(); });
  const std::lock_guard lock(mutex_);
  if (answered && !error_.empty()) throw Error(error_);
  if (answered) return pending_;
  const Item* const first = first_not_done();
  if (first == nullptr) return std::nullopt;
  return PendingCollective{key_, first->number, first->name, 0};
}

std::optional<std::int64_t> InFlightQueue::reached(std::uint64_t group) {
  if (group != key_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return begun_;
}

void InFlightQueue::abort() noexcept {
  try {
    auto call = std::make_unique<TimedCall>(8 * device_.reply_seconds);
    // If the call hangs, its thread is leaked, because the destructor would wait for it; the job ends anyway.
    if (!call->run(device_.abort)) (void)call.release();
  } catch (const std::exception&) {
    return;  // no thread could be started; the job ends anyway
  }
}

}  // namespace fp8::watchdog
