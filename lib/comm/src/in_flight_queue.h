/// Collectives that a device has been given and has not finished, in order: what a watchdog asks a carrier for. Private
/// to comm. Knows neither CUDA nor NCCL: how far the device is, errors and giving up are asked for through functions,
/// and these from a thread of its own: a driver that hangs must not keep a watchdog from speaking.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "progress_table.h"
#include "timed_call.h"

namespace fp8::comm {

/// The in-flight queue of a group of ranks. One thread gives it work, the watchdog's looks at it.
class InFlightQueue final : public Carrier {
 public:
  /// What a device is asked; called from a thread of the in-flight queue's as well.
  struct Device {
    std::function<void()> check;  ///< throws Error for an asynchronous error
    std::function<void()> abort;  ///< gives up what is under way; throws nothing
    double patience = 0.25;       ///< seconds to wait for answers, and eight times that for `abort`
  };
  /// For the ranks of `group` on the progress table, which is told of it until it goes.
  InFlightQueue(std::shared_ptr<ProgressTable> progress, std::size_t group, Device device);
  ~InFlightQueue() override;
  InFlightQueue(const InFlightQueue&) = delete;
  InFlightQueue& operator=(const InFlightQueue&) = delete;

  /// Notes a collective, given to the device: whether the device has come to it, and whether it is done. Throws what
  /// these throw.
  void add(const char* name, std::function<bool()> come, std::function<bool()> done);

  /// As Carrier says. Where the device does not answer, it is the oldest that was not done when it last did.
  std::optional<Waiting> oldest() override;
  std::optional<std::int64_t> come_to(std::uint64_t group) override;
  void abort() noexcept override;

 private:
  struct Item {
    const char* name;
    std::int64_t number;
    std::function<bool()> come, done;
  };
  void look();
  const Item* first_not_done() const;

  std::shared_ptr<ProgressTable> progress_;
  std::size_t group_ = 0;  // of these collectives alone
  std::uint64_t key_ = 0;
  Device device_;
  std::mutex mutex_;  // of all below but the thread; never held while the device is asked
  std::deque<std::shared_ptr<const Item>> items_;
  std::int64_t given_ = 0;
  std::int64_t come_ = 0, done_ = 0;  // collectives, when the device last answered
  std::optional<Waiting> waiting_;    // likewise
  std::string error_;                 // likewise
  TimedCall asking_;                  // ends before what it asks for goes
};

}  // namespace fp8::comm
