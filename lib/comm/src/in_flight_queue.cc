// A queue of what is under way. A stream works in order, so that only its head can be late.
#include "in_flight_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "fp8/base/error.h"

namespace fp8::comm {

InFlightQueue::InFlightQueue(std::shared_ptr<ProgressTable> progress, std::size_t group, Device device)
    : progress_(std::move(progress)), device_(std::move(device)), asking_(device_.patience) {
  std::tie(group_, key_) = progress_->add_twin(group);
  progress_->add_carrier(this);
}

InFlightQueue::~InFlightQueue() { progress_->remove_carrier(this); }

// What is done is history; only this thread takes it away.
void InFlightQueue::add(const char* name, std::function<bool()> come, std::function<bool()> done) {
  const std::int64_t number = progress_->reach(group_);  // not under the lock: the progress table asks under its own
  std::unique_lock lock(mutex_);
  while (!items_.empty()) {
    const std::shared_ptr<const Item> first = items_.front();
    lock.unlock();
    const bool past = first->done();
    lock.lock();
    if (!past) break;
    items_.pop_front();
  }
  items_.push_back(std::make_shared<const Item>(Item{name, number, std::move(come), std::move(done)}));
  given_ = number;
}

const InFlightQueue::Item* InFlightQueue::first_not_done() const {
  const auto at = std::find_if(items_.begin(), items_.end(), [&](const auto& item) { return item->number > done_; });
  return at != items_.end() ? at->get() : nullptr;
}

// Asks the device, and notes what it says.
void InFlightQueue::look() {
  std::unique_lock lock(mutex_);
  const std::vector<std::shared_ptr<const Item>> items(items_.begin(), items_.end());
  const std::int64_t given = given_;
  lock.unlock();
  try {
    device_.check();
    auto at = items.begin();
    while (at != items.end() && (*at)->done()) ++at;
    const std::int64_t done = at != items.end() ? (*at)->number - 1 : given;
    std::int64_t come = done;
    std::optional<Waiting> waiting;
    if (at != items.end() && (*at)->come()) waiting = Waiting{key_, (*at)->number, (*at)->name, 0};
    for (; at != items.end() && (*at)->come(); ++at) come = (*at)->number;
    lock.lock();
    done_ = done;
    come_ = come;
    waiting_ = waiting;
    error_.clear();
  } catch (const std::exception& e) {
    lock.lock();
    const Item* const first = first_not_done();
    error_ = e.what() + (first != nullptr ? std::string(" in ") + first->name + " " + std::to_string(first->number)
                                          : std::string());
  }
}

std::optional<Waiting> InFlightQueue::oldest() {
  const bool told = asking_.run([this] { look(); });
  const std::lock_guard lock(mutex_);
  if (told && !error_.empty()) throw Error(error_);
  if (told) return waiting_;
  const Item* const first = first_not_done();
  return first != nullptr ? std::optional(Waiting{key_, first->number, first->name, 0}) : std::nullopt;
}

std::optional<std::int64_t> InFlightQueue::come_to(std::uint64_t group) {
  if (group != key_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return come_;
}

void InFlightQueue::abort() noexcept {
  try {
    auto timed_call = std::make_unique<TimedCall>(8 * device_.patience);
    if (!timed_call->run(device_.abort))
      (void)timed_call.release();  // it may hang for good, and the job ends without it
  } catch (const std::exception&) {
    return;  // no thread: the job ends all the same
  }
}

}  // namespace fp8::comm
