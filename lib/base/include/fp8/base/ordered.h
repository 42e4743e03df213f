/// Work on all processors with the results in the order of the items: for programs that read a stream, transform it
/// piece by piece and write it in order. Memory is bounded by the number of items in flight.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace fp8 {

/// Runs a function on items, each in a thread of its own, and delivers the results in the order of the items. Items
/// should be large, about 1 MiB of text: a thread is started for each.
template <class Item, class Result>
class OrderedTasks {
 public:
  /// `work` is called by several threads at once, `deliver` only by the thread that calls add() and finish().
  OrderedTasks(std::function<Result(Item)> work, std::function<void(Result)> deliver)
      : work_(std::move(work)), deliver_(std::move(deliver)) {}
  /// Waits for the threads; their results are lost.
  ~OrderedTasks() = default;
  OrderedTasks(const OrderedTasks&) = delete;
  OrderedTasks& operator=(const OrderedTasks&) = delete;

  /// Starts work on `item`. Waits for the oldest item, and delivers its result, while there are more items in flight
  /// than processors. Throws what `work` or `deliver` throws; no call may follow then.
  void add(Item item) {
    in_flight_.push_back(
        std::async(std::launch::async | std::launch::deferred,
                   [this, item = std::move(item)]() mutable -> Result { return work_(std::move(item)); }));
    while (in_flight_.size() > processors_) deliver_oldest();
  }
  /// Delivers the results of all items. Throws as add().
  void finish() {
    while (!in_flight_.empty()) deliver_oldest();
  }

 private:
  void deliver_oldest() {
    std::future<Result> oldest = std::move(in_flight_.front());
    in_flight_.pop_front();
    deliver_(oldest.get());
  }

  std::function<Result(Item)> work_;
  std::function<void(Result)> deliver_;
  std::size_t processors_ = std::max(1U, std::thread::hardware_concurrency());
  std::deque<std::future<Result>> in_flight_;  // declared last: its threads use the members above
};

}  // namespace fp8
