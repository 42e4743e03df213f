/// How a watchdog finds out who is missing: it sees on the progress table that this rank waits too long in a
/// collective, asks the other watchdogs where their ranks are, and names those who have not come or do not answer. It
/// also sees work of this rank that must make progress and makes none. Private to comm. Knows neither threads nor MPI
/// nor clocks: messages go through a Channel, and time is what it is told.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8/comm/comm.h"
#include "progress_table.h"

namespace fp8::comm {

/// What watchdogs say to each other.
struct Message {
  std::int64_t question = 0;  ///< 1: where are you; 0: an answer
  std::int64_t group = 0;     ///< bits of the group's key
  std::int64_t reached = 0;   ///< answer: collectives of the group this rank has reached
  std::int64_t doing = 0;     ///< answer: a Doing
};

/// What a rank is at when asked.
enum class Doing : std::uint8_t { computing, own_work, waiting };

/// Carries messages between the ranks of the job beside their collectives. Used by one thread.
class Channel {
 public:
  virtual ~Channel() = default;
  /// Sends without blocking, whatever the other rank is doing.
  virtual void send(int rank, const Message& message) = 0;
  /// The next message that has come, with its sender; nothing when none has.
  virtual std::optional<std::pair<int, Message>> receive() = 0;
};

/// See the top of this file.
class StallDetector {
 public:
  /// Of the rank with this number, which waits `timeout` seconds at most; then `lost` is called, which should not
  /// return. References outlive it.
  StallDetector(ProgressTable& progress, Channel& channel, int rank, double timeout,
                std::function<void(const Stall&)> lost);
  /// Seconds between two calls of tick().
  double pace() const { return pace_; }
  /// Answers, and looks around. `elapsed` seconds have gone by; more than twice the pace means that this process did
  /// not run, and is not counted.
  void tick(double elapsed);
  /// Answers what has come, no more.
  void answer();

 private:
  struct Peer {
    std::optional<Message> said;  // last answer, about this wait
    bool asked = false;           // a question is on its way
    double silent = 0;            // seconds since then
    double late = 0;              // seconds that it was waited for, but for work of its own
  };
  bool reached(const Peer& p) const;
  bool doing(const Peer& p, Doing d) const;
  void ask(double elapsed);
  bool stuck(const ProgressTable::View& view, double elapsed);
  std::optional<Stall> judge(const ProgressTable::View& view) const;
  bool speaks() const;

  ProgressTable& progress_;
  Channel& channel_;
  int rank_;
  double timeout_, pace_;
  std::function<void(const Stall&)> lost_;
  std::optional<Waiting> wait_;
  std::map<int, Peer> peers_;
  double waited_ = 0, overdue_ = 0;
  std::optional<ProgressTable::Work> work_;
  double idle_ = 0;  // seconds in which work_ stayed as it is
};

}  // namespace fp8::comm
