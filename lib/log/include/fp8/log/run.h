/// The log of one run, read from JSON Lines: what its steps measured, by column. The format is fp8-log(5).
/// Not a writer of logs, and no statistics: see summary.h and compare.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/log/series.h"

namespace fp8::log {

/// Values of one numeric field of the step records, one a step; NaN where a step lacks it or has null.
struct Column {
  std::string name;       ///< the field, such as "loss"
  Series<double> values;  ///< as many as there are steps
};

/// Steps that ran under one setting, from one step up to the next phase.
struct Phase {
  std::size_t first = 0;              ///< index (not number) of its first step
  std::string precision{};            ///< "fp32", "bf16", "fp8"; empty when the log does not say
  std::string recipe{};               ///< FP8 recipe; empty outside FP8
  std::optional<bool> emulated = {};  ///< whether FP8 was emulated; nothing when the log does not say
};

/// An evaluation during the run.
struct Evaluation {
  double loss = 0;     ///< nats per token; NaN when not finite
  double seconds = 0;  ///< that it took; NaN when the log does not say
};

/// A checkpoint that was saved.
struct Save {
  double seconds = 0;  ///< from its beginning to its commit; NaN when the log does not say
  double waited = 0;   ///< of these, the seconds for which the run stood still; NaN when the log does not say
};

/// A run as its log tells it, after every resumption has replaced what it repeated.
struct Run {
  /// An empty one, whose series are kept in `room`.
  explicit Run(const std::shared_ptr<Room>& room) : steps(room), tokens(room) {}

  std::string path{};                  ///< as given: folder, file or "-"
  std::string name{};                  ///< short name for people: run_name(path), or one of run_names()
  Series<std::int64_t> steps;          ///< numbers of the steps, increasing
  Series<std::int64_t> tokens;         ///< tokens seen after each step; -1 where the log does not say
  std::vector<Column> columns{};       ///< the fields asked for that were found, in the order they came
  std::vector<std::string> metrics{};  ///< all numeric fields of step records, in the order they came
  std::vector<Phase> phases{};         ///< increasing by `first`; the first begins at 0 if there are steps
  std::multimap<std::int64_t, Evaluation> evaluations{};  ///< by the number of the step before
  std::multimap<std::int64_t, Save> checkpoints{};        ///< by the number of the step
  std::vector<std::int64_t> restarts{};         ///< number of the first step each time it went on after a stop
  std::optional<std::int64_t> planned_steps{};  ///< length of the whole run, when its first record says so
  std::int64_t warnings = 0;                    ///< number of warning records
  bool finished = false;                        ///< whether an end record follows the last step
  std::string reason{};                         ///< what the end record gives as reason; empty without one

  /// Values of a field, one a step; nullptr when no step has it or it was not asked for.
  const Series<double>* find(std::string_view metric) const;
};

/// The metrics of any of these runs, in the order in which they come up.
std::vector<std::string> metrics_of(std::span<const Run> runs);

/// What read_run() keeps.
struct Wanted {
  bool all = false;                             ///< every numeric field; else only `metrics`
  std::vector<std::string> metrics{};           ///< names of fields
  std::size_t memory = std::size_t{32} << 20U;  ///< bytes of the series to keep in memory; the rest is in a file

  /// Whether a field is kept.
  bool has(std::string_view metric) const;
};

/// Reads the log of a run: a folder that holds log.jsonl, a file, or "-" for standard input. Booleans count as 0 and 1.
/// A step that is not above the last one replaces all from there (the run was resumed). A last line that its writer
/// did not finish is ignored, and so is one in front of a `run` record. Records of unknown type, unknown fields and
/// missing ones are no errors. Long logs are read in pieces on all processors; the result does not depend on how many.
/// Memory: `wanted.memory`, some MiB a processor, and about 50 bytes for each evaluation, save and phase.
/// Throws Error `path: reason` when it cannot be read or holds no record of a run, and `path: line L ...: reason` for
/// what is not JSON or not a record.
Run read_run(const std::string& path, const Wanted& wanted);

/// As read_run(), of a log in memory; `path` names it in the run and in errors.
Run parse_run(std::string_view text, const std::string& path, const Wanted& wanted);

/// The file behind the path of a run: its log.jsonl for a folder. Throws Error when a folder has none.
std::string log_file(const std::string& path);

/// The short name of a path: its last part, without ".jsonl"; of ".../run/log.jsonl" the folder's.
std::string run_name(const std::string& path);

/// Names for runs that are looked at together, no two the same: run_name(), but the path where that is another run's
/// too, as of "a/run" and "b/run", and with "-2" behind a path that was there before.
std::vector<std::string> run_names(std::span<const std::string> paths);

}  // namespace fp8::log
