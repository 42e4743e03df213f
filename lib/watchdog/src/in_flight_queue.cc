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
  begun_[key_] = 0;
  table_->add_source(this);
}

InFlightQueue::~InFlightQueue() { table_->remove_source(this); }

// This function also removes the items that are done; no other function removes items.
void InFlightQueue::add(const char* name, std::span<const Ends> messages, std::function<bool()> begun,
                        std::function<bool()> done) {
  Item item{0, {}, "", std::move(begun), std::move(done)};
  // The table is used before mutex_ is locked: snapshot() locks in the other order.
  const auto reach = [&](std::size_t group, std::uint64_t key) {
    const std::int64_t number = table_->reach(group);
    if (item.parts.empty()) item.text = table_->text_of(group, number, name);
    item.parts.push_back({key, number, name, 0});
  };
  if (messages.empty()) reach(group_, key_);
  for (const Ends& m : messages) std::apply(reach, table_->message_group(group_, m.from, m.to));
  std::unique_lock lock(mutex_);
  for (const PendingCollective& part : item.parts) begun_.try_emplace(part.group, 0);
  while (!items_.empty()) {
    const std::shared_ptr<const Item> first = items_.front();
    lock.unlock();
    const bool first_done = first->done();
    lock.lock();
    if (!first_done) break;
    set_begun(*first);
    items_.pop_front();
  }
  item.place = ++queued_;
  items_.push_back(std::make_shared<const Item>(std::move(item)));
}

// Items are passed in order, and mutex_ is locked.
void InFlightQueue::set_begun(const Item& item) {
  for (const PendingCollective& part : item.parts) {
    std::int64_t& begun = begun_[part.group];
    begun = std::max(begun, part.number);
  }
}

const InFlightQueue::Item* InFlightQueue::first_not_done() const {
  const auto at = std::find_if(items_.begin(), items_.end(), [&](const auto& item) { return item->place > done_; });
  return at != items_.end() ? at->get() : nullptr;
}

void InFlightQueue::query_device() {
  std::unique_lock lock(mutex_);
  const std::vector<std::shared_ptr<const Item>> items(items_.begin(), items_.end());
  const std::int64_t queued = queued_;
  lock.unlock();
  try {
    device_.check();
    auto first = items.begin();
    while (first != items.end() && (*first)->done()) ++first;
    auto end = first;
    while (end != items.end() && (*end)->begun()) ++end;
    lock.lock();
    done_ = first != items.end() ? (*first)->place - 1 : queued;
    for (auto at = items.begin(); at != end; ++at) set_begun(**at);
    pending_ = first != end ? (*first)->parts : std::vector<PendingCollective>();
    error_.clear();
  } catch (const std::exception& e) {
    lock.lock();
    const Item* const first = first_not_done();
    error_ = e.what() + (first != nullptr ? " in " + first->text : std::string());
  }
}

std::vector<PendingCollective> InFlightQueue::oldest() {
  const bool answered = query_.run([this] { query_device(); });
  const std::lock_guard lock(mutex_);
  if (answered && !error_.empty()) throw Error(error_);
  if (answered) return pending_;
  const Item* const first = first_not_done();
  return first != nullptr ? first->parts : std::vector<PendingCollective>();
}

std::optional<std::int64_t> InFlightQueue::reached(std::uint64_t group) {
  const std::lock_guard lock(mutex_);
  const auto at = begun_.find(group);
  return at != begun_.end() ? std::optional(at->second) : std::nullopt;
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
