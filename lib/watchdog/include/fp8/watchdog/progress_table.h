/// The collectives and the local work of this process, for its watchdog. The threads that call collectives write to the
/// table, the thread of the watchdog reads it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8/base/clock.h"

namespace fp8::watchdog {

/// A collective that this rank has reached and that has not ended. A message between two ranks is a collective of the
/// group of these two; see ProgressTable::message_group().
struct PendingCollective {
  std::uint64_t group = 0;    ///< key of the group of ranks, equal on all its ranks
  std::int64_t number = 0;    ///< sequence number in the group, from 1
  const char* name = "";      ///< name in messages, in static storage
  std::uint64_t wait_id = 0;  ///< differs between any two waits of the host; 0 for a collective of a device
  bool operator==(const PendingCollective&) const = default;
};

/// A source of collectives that end without a wait of the host, such as those of NCCL. The thread of the watchdog calls
/// it while it holds the lock of the progress table.
class AsyncCollectives {
 public:
  virtual ~AsyncCollectives() = default;
  /// The oldest collective that has begun on the device and has not ended; empty if there is none. Messages that the
  /// device exchanges at the same time are several. Throws Error for an asynchronous error (ncclCommGetAsyncError).
  virtual std::vector<PendingCollective> oldest() = 0;
  /// The number of collectives of a group that have begun on the device of this rank; none for a group of another
  /// source.
  virtual std::optional<std::int64_t> reached(std::uint64_t group) = 0;
  /// Aborts the collectives that have not ended, so that they do not block the end of the job (ncclCommAbort).
  virtual void abort() noexcept = 0;
};

class WatchedWork;

/// The collectives that this process waits for and the work that it does. Any thread may use the table.
class ProgressTable {
 public:
  /// Adds a group of ranks, given by their numbers in the job, with its name in messages, which may be empty; returns
  /// the index of the group in this table.
  std::size_t add_group(std::uint64_t key, std::vector<int> members, std::string name = "");
  /// Adds a group of the same ranks and name, whose collectives are counted separately; returns its index and its key.
  std::pair<std::size_t, std::uint64_t> add_derived_group(std::size_t group);
  /// The group of two ranks for the messages that rank `from` of a group sends to rank `to`, its index and its key;
  /// added by the first call. Both ranks reach each of these messages, the sender when it starts to send and the
  /// receiver when it starts to receive, in the same order. So no other rank is missing from a message, and messages in
  /// the other direction and collectives of the group are counted separately.
  std::pair<std::size_t, std::uint64_t> message_group(std::size_t group, int from, int to);
  /// Counts a collective of a group, which this rank has reached; returns its sequence number, from 1.
  std::int64_t reach(std::size_t group);
  /// Sets the name of each rank's machine, by rank of the job, for messages; empty: there is one machine, which
  /// messages do not name.
  void set_hosts(std::vector<std::string> hosts);
  /// The names that were set.
  std::vector<std::string> hosts() const;
  /// A rank of the job in messages, behind the word rank: "5", or "5 (node-3)" if there are hosts().
  std::string text_of_rank(int rank) const;
  /// The same of a rank of a group.
  std::string text_of_rank(std::size_t group, int rank) const;
  /// A collective in messages, as "all-gather 5 of dp_shard" or "message 5 of pp from rank 2 to rank 3".
  std::string text_of(std::size_t group, std::int64_t number, const char* name) const;
  /// This rank begins to wait for a collective that it has reached; see ScopedWait.
  void begin_wait(std::size_t group, std::int64_t number, const char* name);
  void end_wait();
  /// Seconds of all waits between begin_wait() and end_wait().
  double waited_seconds() const;
  /// LocalWork begins or ends; may be nested.
  void begin_local_work();
  void end_local_work();
  /// Sets the current WatchedWork; null if there is none.
  void set_watched_work(const WatchedWork* work);
  /// Sets the training step that messages contain.
  void set_step(std::int64_t step);
  /// Sets what the messages that this rank waits for are, such as "gradient of micro-batch 2 from stage 1 to stage 0",
  /// which is added to their text; empty: nothing.
  void set_contents(const std::string& text);
  /// Adds a source, which is read until it is removed.
  void add_source(AsyncCollectives* source);
  /// Removes a source.
  void remove_source(AsyncCollectives* source);

  /// The state of a WatchedWork.
  struct WorkProgress {
    std::string name;         ///< name in messages
    std::uint64_t count = 0;  ///< pieces done
    bool operator==(const WorkProgress&) const = default;
  };
  /// A pending collective, and what its group adds.
  struct Awaited {
    PendingCollective collective;
    std::string text;          ///< see text_of()
    std::vector<int> members;  ///< ranks of its group
    bool operator==(const Awaited&) const = default;
  };
  /// The state of the table at one time.
  struct Snapshot {
    std::vector<Awaited> pending;  ///< one collective, or messages that a device exchanges at the same time
    std::uint64_t waits = 0;       ///< number of waits of the host that have begun
    bool local_work = false;
    std::int64_t step = -1;  ///< number of the step, or -1 before the first
    std::optional<WorkProgress> work = {};
  };
  /// The current state. Throws the Error of AsyncCollectives::oldest().
  Snapshot snapshot() const;
  /// The number of collectives of the group with this key that this rank has reached.
  std::int64_t reached(std::uint64_t key) const;
  /// Calls AsyncCollectives::abort() of all sources.
  void abort() noexcept;

 private:
  struct Group {
    std::uint64_t key;
    std::vector<int> members;
    std::string name;
    std::string ends;  // " from rank 2 to rank 3" for the messages between two ranks, else empty
    std::int64_t reached = 0;
    std::uint64_t derived = 0;  // number of groups derived from this one
  };
  const Group* find(std::uint64_t key) const;
  static std::string text_of(const Group& group, std::int64_t number, const char* name);
  std::string rank_text(int rank) const;

  mutable std::mutex mutex_;
  std::vector<std::string> hosts_;
  std::vector<Group> groups_;
  std::optional<PendingCollective> pending_;
  std::uint64_t last_wait_id_ = 0;
  Clock::time_point wait_begun_{};
  double waited_ = 0;  // seconds, see waited_seconds()
  int local_work_ = 0;
  const WatchedWork* work_ = nullptr;
  std::int64_t step_ = -1;
  std::string contents_;
  std::vector<AsyncCollectives*> sources_;
};

/// Calls begin_wait() of a table now, and end_wait() in the destructor.
class ScopedWait {
 public:
  ScopedWait(ProgressTable& table, std::size_t group, std::int64_t number, const char* name) : table_(table) {
    table_.begin_wait(group, number, name);
  }
  ~ScopedWait() { table_.end_wait(); }
  ScopedWait(const ScopedWait&) = delete;
  ScopedWait& operator=(const ScopedWait&) = delete;

 private:
  ProgressTable& table_;
};

/// Work of this rank without collectives, such as reading a file, that may take any time. While it exists, other ranks
/// report this rank only if its process does not answer.
class LocalWork {
 public:
  explicit LocalWork(ProgressTable& table) : table_(table) { table_.begin_local_work(); }
  ~LocalWork() { table_.end_local_work(); }
  LocalWork(const LocalWork&) = delete;
  LocalWork& operator=(const LocalWork&) = delete;

 private:
  ProgressTable& table_;
};

/// LocalWork that must make progress: the watchdog of this rank reports a stall if the number of finished pieces stays
/// the same for the timeout. At most one exists at a time.
class WatchedWork {
 public:
  /// `name` is used in messages, as "writing step-00000004"; `count` is the number of pieces done, and outlives this.
  WatchedWork(ProgressTable& table, std::string name, const std::atomic<std::uint64_t>& count)
      : local_(table), table_(table), name_(std::move(name)), count_(count) {
    table_.set_watched_work(this);
  }
  ~WatchedWork() { table_.set_watched_work(nullptr); }
  WatchedWork(const WatchedWork&) = delete;
  WatchedWork& operator=(const WatchedWork&) = delete;
  const std::string& name() const { return name_; }
  std::uint64_t count() const { return count_; }

 private:
  LocalWork local_;
  ProgressTable& table_;
  std::string name_;
  const std::atomic<std::uint64_t>& count_;
};

}  // namespace fp8::watchdog
