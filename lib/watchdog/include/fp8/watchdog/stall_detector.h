/// The decision of a watchdog. When this rank has waited too long for a collective, the detector queries the other
/// ranks, and reports those that have not reached the collective or do not answer. It also reports WatchedWork of this
/// rank that makes no progress. It has no thread, clock or MPI: messages go through a Channel, and the caller passes
/// the elapsed time.
///
/// One rank reports. A rank that is about to report announces that to all ranks, and then waits, the longer the higher
/// its number is. A rank that receives the announcement of a lower rank, or of any rank before it has made its own,
/// does not report within the time that the other one takes to end the job.
///
/// A rank that computes is late if it has not reached the collective for the timeout, and has waited for no collective
/// in this time. A rank that waits for another collective may itself wait for a rank that is late, which a member of
/// that collective reports; therefore it is late only after twice the timeout, when ranks wait for each other. A
/// message is a collective of its sender and its receiver alone (ProgressTable::message_group()).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8/watchdog/progress_table.h"

namespace fp8::watchdog {

/// Why a job must end: the ranks that are missing from a collective, or an error of this rank.
struct Stall {
  std::vector<std::string> ranks;  ///< the ranks of the job that are late, as ProgressTable::text_of_rank() writes
                                   ///< them; empty if all have reached the collective, but it does not end
  std::string collective;          ///< see ProgressTable::text_of()
  std::int64_t step = -1;          ///< value of ProgressTable::set_step(), or -1 if there is none
  double timeout = 0;              ///< seconds
  bool responding = true;          ///< whether the processes of `ranks` answer; a stopped process does not
  std::string error;               ///< the whole message, if the stall concerns this rank only

  /// One line, as "rank 1 (node-2) did not reach all-reduce 1234 of dp_shard (step 17) within 5 s".
  std::string message() const;
};

/// The activity of a rank at the time of a query.
enum class Activity : std::uint8_t { computing, local_work, waiting };

/// A message between two detectors, sent as its bytes.
struct Message {
  /// An announcement says that its sender is about to report; it uses no other member.
  enum Kind : std::int64_t { reply, query, announcement };
  Kind kind = reply;
  std::int64_t group = 0;      ///< bits of the group's key
  std::int64_t reached = 0;    ///< reply: collectives of the group that the sender has reached
  std::int64_t activity = 0;   ///< reply: an Activity
  std::int64_t computing = 0;  ///< reply: milliseconds for which the sender has computed since it last waited; half of
                               ///< the timeout in LocalWork, from which it goes on after the work
};

/// Carries messages between the ranks of a job, independently of their collectives. Used by one thread.
class Channel {
 public:
  virtual ~Channel() = default;
  /// The number of ranks of the job.
  virtual int size() const = 0;
  /// Sends without blocking, whatever the other rank does.
  virtual void send(int rank, const Message& message) = 0;
  /// The next message that has arrived, and its sender; none if there is none.
  virtual std::optional<std::pair<int, Message>> receive() = 0;
};

/// The detector of one rank. Used by one thread.
class StallDetector {
 public:
  /// Watches the rank with this number. Calls `on_stall`, which should not return, when this rank has waited `timeout`
  /// seconds. `table` and `channel` outlive it.
  StallDetector(ProgressTable& table, Channel& channel, int rank, double timeout,
                std::function<void(const Stall&)> on_stall);
  /// Seconds between two calls of poll().
  double interval() const { return interval_; }
  /// Answers queries and checks this rank. `elapsed` is the time since the last call in seconds; at most twice the
  /// interval is counted, because a longer pause means that this process was stopped.
  void poll(double elapsed);
  /// Answers the queries that have arrived.
  void answer_queries();

 private:
  struct Peer {
    std::optional<Message> reply;   // the last one about the pending collective
    bool query_sent = false;        // and not answered yet
    double unanswered_seconds = 0;  // since the query was sent
    double late_seconds = 0;        // time for which this rank has waited for the peer, but see Message::computing
  };
  // A collective that this rank waits for; there are several if a device exchanges messages at the same time.
  struct Part {
    ProgressTable::Awaited awaited;
    std::map<int, Peer> peers;  // the other ranks of its group
    bool has_reached(const Peer& p) const { return p.reply && p.reply->reached >= awaited.collective.number; }
  };
  bool has_activity(const Peer& p, Activity activity) const;
  bool is_silent(const Peer& p) const;
  void receive_reply(int sender, const Message& reply);
  void query_peers(double elapsed);
  bool work_is_stuck(const ProgressTable::Snapshot& now, double elapsed);
  std::optional<Stall> check_collective(const ProgressTable::Snapshot& now, double elapsed);
  std::optional<Stall> find_stall(const ProgressTable::Snapshot& now) const;
  bool is_reporter() const;
  void receive_announcement(int sender);
  void report_error(const std::string& message, double elapsed);
  void report(const Stall& stall, double delay, double elapsed);

  ProgressTable& table_;
  Channel& channel_;
  int rank_;
  double timeout_, interval_;
  std::function<void(const Stall&)> on_stall_;
  std::vector<Part> parts_;
  double waited_ = 0;        // seconds for parts_
  double stalled_ = 0;       // seconds since this rank found what it would report
  bool announced_ = false;   // whether it has announced that
  double quiet_ = 0;         // seconds for which another rank has announced a report
  double computing_ = 0;     // seconds, see Message::computing
  std::uint64_t waits_ = 0;  // ProgressTable::Snapshot::waits when computing_ was 0
  std::optional<ProgressTable::WorkProgress> work_;
  double work_idle_ = 0;  // seconds in which work_ did not change
};

}  // namespace fp8::watchdog
