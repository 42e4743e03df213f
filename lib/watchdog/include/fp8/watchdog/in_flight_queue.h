/// The collectives that were queued on a device and have not ended, in order. It contains no CUDA or NCCL: functions of
/// the caller query the device. They run on a thread of their own (timed_call.h), so that a driver that hangs does not
/// block the watchdog.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8/watchdog/progress_table.h"
#include "fp8/watchdog/timed_call.h"

namespace fp8::watchdog {

/// The queue of one group of ranks. One thread calls add(), the thread of the watchdog the functions of
/// AsyncCollectives.
class InFlightQueue final : public AsyncCollectives {
 public:
  /// Queries of the device, which are called on another thread too.
  struct Device {
    std::function<void()> check;  ///< throws Error for an asynchronous error
    std::function<void()> abort;  ///< aborts the collectives that have not ended; throws nothing
    double reply_seconds = 0.25;  ///< time limit of a query; eight times as long for `abort`
  };
  /// Serves the ranks of `group` in the table, of which it is a source until its destructor.
  InFlightQueue(std::shared_ptr<ProgressTable> table, std::size_t group, Device device);
  ~InFlightQueue() override;
  InFlightQueue(const InFlightQueue&) = delete;
  InFlightQueue& operator=(const InFlightQueue&) = delete;

  /// The ranks of the group that send and receive a message.
  struct Ends {
    int from = 0;
    int to = 0;
  };
  /// Adds a collective of the group that was queued on the device, or, unless it is empty, `messages` of this rank,
  /// which the device exchanges at the same time. `begun` and `done` return whether the device has begun them and
  /// finished them. Throws what these throw.
  void add(const char* name, std::span<const Ends> messages, std::function<bool()> begun, std::function<bool()> done);

  /// If the device does not answer, the oldest collective that had not ended at its last answer.
  std::vector<PendingCollective> oldest() override;
  std::optional<std::int64_t> reached(std::uint64_t group) override;
  void abort() noexcept override;

 private:
  struct Item {
    std::int64_t place;                    // in the queue, from 1
    std::vector<PendingCollective> parts;  // a collective, or messages
    std::string text;                      // of the first part, see ProgressTable::text_of()
    std::function<bool()> begun, done;
  };
  void query_device();
  void set_begun(const Item& item);
  const Item* first_not_done() const;

  std::shared_ptr<ProgressTable> table_;
  std::size_t group_ = 0;  // derived: it counts these collectives only
  std::uint64_t key_ = 0;
  Device device_;
  std::mutex mutex_;  // guards the members below except query_; not held while the device is queried
  std::deque<std::shared_ptr<const Item>> items_;
  std::int64_t queued_ = 0;                      // items
  std::int64_t done_ = 0;                        // items, at the last answer of the device
  std::map<std::uint64_t, std::int64_t> begun_;  // collectives of each group, at the last answer
  std::vector<PendingCollective> pending_;       // pending collectives at the last answer
  std::string error_;                            // error at the last answer
  TimedCall query_;                              // the last member, because its thread uses the others
};

}  // namespace fp8::watchdog
