/// Collectives on a stream of their own beside a stream of computation, ordered by events. A template over event and
/// stream, so that tests run it without a device. Private to comm.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "fp8/comm/comm.h"
#include "fp8/device/pool.h"
#include "fp8/watchdog/in_flight_queue.h"

namespace fp8::comm::cuda {

/// Calls body() between the start and the end of a group of NCCL's (Nccl of nccl_library.h); NCCL starts the
/// collectives of the group when it ends. Throws Error of `what` if that fails; ends the group when body() throws.
template <class Library, class Body>
void in_group(const Library& nccl, const char* what, Body&& body) {
  nccl.check(nccl.GroupStart(), what);
  try {
    body();
  } catch (...) {
    (void)nccl.GroupEnd();  // reports the same error
    throw;
  }
  nccl.check(nccl.GroupEnd(), what);
}

/// A stream whose collectives begin after what the stream of computation was given before them. `Event` is
/// device::Event or has its members record, make_wait and done.
template <class Event, class Stream>
class Lane {
 public:
  /// Both streams outlive the lane. With a table, the watchdog of `group` watches the collectives through `device`.
  Lane(Stream compute, Stream stream, const std::shared_ptr<watchdog::ProgressTable>& table, std::size_t group,
       watchdog::InFlightQueue::Device device)
      : compute_(compute), stream_(stream) {
    if (table != nullptr) queue_.emplace(table, group, std::move(device));
  }

  /// Calls body(stream), which puts one collective or a group on the stream, or, unless it is empty, the group of these
  /// `messages`. Waiting for the request makes the stream of computation wait, not the host.
  template <class Body>
  Request start(const char* name, Body&& body, std::span<const watchdog::InFlightQueue::Ends> messages = {}) {
    std::shared_ptr<Event> ready = events_.get(), done = events_.get();
    ready->record(compute_);
    ready->make_wait(stream_);
    body(stream_);
    done->record(stream_);
    if (queue_)
      queue_->add(
          name, messages, [ready] { return ready->done(); }, [done] { return done->done(); });
    return Request(std::make_unique<Started>(std::move(done), compute_));
  }

 private:
  class Started final : public Request::Operation {
   public:
    Started(std::shared_ptr<Event> done, Stream compute) : done_(std::move(done)), compute_(compute) {}
    void wait() override { done_->make_wait(compute_); }
    bool test() override {
      if (!done_->done()) return false;
      wait();
      return true;
    }

   private:
    std::shared_ptr<Event> done_;
    Stream compute_;
  };

  Stream compute_, stream_;
  // An event may return here before the device has passed it: streams that were made to wait for it keep what they wait
  // for when it is recorded again.
  device::Pool<Event> events_;
  std::optional<watchdog::InFlightQueue> queue_;  // destroyed first, because it holds events
};

}  // namespace fp8::comm::cuda
