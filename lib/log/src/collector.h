/// Puts the pieces of a log together: what a resumed run repeats replaces what it did before.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fp8/log/run.h"
#include "piece.h"

namespace fp8::log {

/// Builds a run from the pieces of its log, in their order.
class Collector {
 public:
  /// `path` names the run, `file` is for messages.
  Collector(const std::string& path, std::string file, const Wanted& wanted);

  /// Takes the next piece. Throws Error `file: line L ...: reason` at the first line that is wrong; a damaged one is
  /// held against the log only once it is known what follows.
  void take(const Piece& piece);
  /// The log has ended. Throws Error for a damaged last line that has a newline, and when nothing was of a run.
  void finish() const;

  /// What the log says so far.
  const Run& run() const { return run_; }
  /// Gives the run away.
  Run release() { return std::move(run_); }

 private:
  void add(const Block& block);
  bool event(const json::Object& record);
  void start(const json::Object& record);
  void rewind(std::int64_t number);
  void note_phase(const Setting& setting);
  std::size_t column(const Field& field);
  [[noreturn]] void refuse(std::uint64_t line, const std::string& reason) const;

  std::string file_;
  std::shared_ptr<Room> room_;
  Run run_;
  Phase from_run_;               // what the run record said
  bool started_again_ = false;   // a run record came after steps
  bool any_ = false;             // a record of a run was seen
  std::uint64_t lines_ = 0;      // of the pieces before
  std::optional<Fault> damage_;  // the last line, with its number in the file
};

}  // namespace fp8::log
