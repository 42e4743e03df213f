/// Assembles the pieces of a log into a run. Steps that a resumed run repeats replace the earlier ones.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fp8/log/run.h"
#include "piece.h"

namespace fp8::log {

/// Builds a run from the pieces of its log, in order.
class Collector {
 public:
  /// `path` is the path of the run, `file` the name in messages.
  Collector(const std::string& path, std::string file);

  /// Adds the next piece. Throws Error `file: line L ...: reason` at the first invalid line. A damaged line is reported
  /// only when the record after it is not a run record.
  void take(const Piece& piece);
  /// Call at the end of the log. Throws Error for a damaged last line that has a newline, and for a log without a
  /// record of a run.
  void finish() const;

  /// The run so far.
  const Run& run() const { return run_; }
  /// Moves the run out.
  Run release() { return std::move(run_); }

 private:
  void add(const StepBlock& block);
  bool event(const json::Object& record);
  void start(const json::Object& record);
  void note_settings(std::int64_t step);
  void rewind(std::int64_t number);
  void note_phase(const StepPrecision& setting);
  std::size_t column(const Field& field);
  [[noreturn]] void refuse(std::uint64_t line, const std::string& reason) const;

  std::string file_;
  Run run_;
  Phase from_run_;                    // precision in the last run record
  std::optional<Settings> settings_;  // settings in the last run record, until a step follows
  bool started_again_ = false;        // a run record followed steps
  bool any_ = false;                  // a record of a run was found
  bool tensors_ = false;              // a record of a tensor was found
  std::uint64_t lines_ = 0;           // number of lines in the pieces so far
  std::optional<Fault> damage_;       // damaged last line, numbered in the file
};

}  // namespace fp8::log
