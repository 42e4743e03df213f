/// Where the collectives of this process stand: written by the thread that calls them, read by a watchdog. Private to
/// comm. Every carrier of collectives keeps one: it counts a collective where the rank reaches it, and says which one
/// it waits in. A carrier whose collectives end without the host waiting, as NCCL's do (in_flight_queue.h), is asked
/// for the oldest one instead, so that one watchdog serves both.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8/comm/comm.h"

namespace fp8::comm {

/// A collective that this rank has reached and that is not done.
struct Waiting {
  std::uint64_t group = 0;   ///< key of the group, equal on all its ranks
  std::int64_t number = 0;   ///< how many-th collective of the group, from 1
  const char* name = "";     ///< as in messages, of static storage
  std::uint64_t serial = 0;  ///< another number for every time something is waited for
  bool operator==(const Waiting&) const = default;
};

/// What carries collectives that end behind the host's back. Called by the watchdog's thread, under the progress
/// table's lock.
class Carrier {
 public:
  virtual ~Carrier() = default;
  /// The oldest collective that is not done and that nothing of this rank's own holds up. Throws Error for an
  /// asynchronous error (ncclCommGetAsyncError).
  virtual std::optional<Waiting> oldest() = 0;
  /// How many collectives of a group this rank has come to, behind its own work before them; nothing for a group whose
  /// collectives others carry.
  virtual std::optional<std::int64_t> come_to(std::uint64_t group) = 0;
  /// Gives up what is under way, so that nothing keeps the job from ending (ncclCommAbort).
  virtual void abort() noexcept = 0;
};

/// See the top of this file. Any thread may call.
class ProgressTable {
 public:
  /// A group of ranks, by their numbers in the job; returns its number here.
  std::size_t add_group(std::uint64_t key, std::vector<int> members);
  /// The ranks of a group once more, for collectives that count on their own; returns the number and the key.
  std::pair<std::size_t, std::uint64_t> add_twin(std::size_t group);
  /// This rank reaches the next collective of a group: its number, from 1.
  std::int64_t reach(std::size_t group);
  /// This rank begins to wait in a collective it has reached.
  void wait(std::size_t group, std::int64_t number, const char* name);
  /// The wait is over.
  void go_on();
  /// Work of this rank alone begins or ends; may be nested.
  void own_work(bool begins);
  /// This rank begins work that must make progress, or ends it (null). It outlives the time between.
  void watch_work(const WatchedWork* work);
  /// The step that messages name.
  void at_step(std::int64_t step);
  /// A carrier to ask too, until it is removed.
  void add_carrier(Carrier* carrier);
  void remove_carrier(Carrier* carrier);

  /// Work that must make progress.
  struct Work {
    std::string what;         ///< as in messages
    std::uint64_t count = 0;  ///< of pieces done
    bool operator==(const Work&) const = default;
  };
  /// What a watchdog sees.
  struct View {
    std::optional<Waiting> waiting;
    std::vector<int> members;  ///< of the group that is waited for
    bool own_work = false;
    std::int64_t step = -1;  ///< -1: none
    std::optional<Work> work = {};
  };
  /// Now. Throws what a carrier throws.
  View look() const;
  /// How many collectives of the group with this key this rank has reached, a carrier's as come_to() says.
  std::int64_t reached(std::uint64_t key) const;
  /// Carrier::abort() of all there are.
  void abort() noexcept;

 private:
  struct Group {
    std::uint64_t key;
    std::vector<int> members;
    std::int64_t reached = 0;
    std::uint64_t twins = 0;  // made of it
  };
  const Group* find(std::uint64_t key) const;

  mutable std::mutex mutex_;
  std::vector<Group> groups_;
  std::optional<Waiting> waiting_;
  std::uint64_t serial_ = 0;
  int own_work_ = 0;
  const WatchedWork* work_ = nullptr;
  std::int64_t step_ = -1;
  std::vector<Carrier*> carriers_;
};

/// Marks a wait for as long as it lives; without a progress table it does nothing.
class WaitMark {
 public:
  WaitMark(ProgressTable* progress, std::size_t group, std::int64_t number, const char* name) : progress_(progress) {
    if (progress_ != nullptr) progress_->wait(group, number, name);
  }
  ~WaitMark() {
    if (progress_ != nullptr) progress_->go_on();
  }
  WaitMark(const WaitMark&) = delete;
  WaitMark& operator=(const WaitMark&) = delete;

 private:
  ProgressTable* progress_;
};

}  // namespace fp8::comm
