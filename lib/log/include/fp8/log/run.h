/// Reads the log of one run (JSON Lines, fp8-log(5)) into one column per metric. Statistics are in summary.h and
/// compare.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8/log/settings.h"

namespace fp8::log {

/// Values of one numeric field of the step records, one per step; NaN where a step lacks the field or has null.
struct Column {
  std::string name{};            ///< the field, such as "loss"
  std::vector<double> values{};  ///< one per step
};

/// Consecutive steps with the same precision, recipe and emulation.
struct Phase {
  std::size_t first = 0;              ///< index (not number) of its first step
  std::string precision{};            ///< "fp32", "bf16", "fp8"; empty when the log lacks it
  std::string recipe{};               ///< FP8 recipe; empty for other precisions
  std::optional<bool> emulated = {};  ///< whether FP8 was emulated; nullopt when the log lacks it
};

/// An evaluation during the run.
struct Evaluation {
  double loss = 0;           ///< nats per token; NaN when not finite
  double seconds = 0;        ///< duration; NaN when the log lacks it
  double time = 0;           ///< seconds since 1970 in UTC, at its end; NaN when the log lacks it
  std::int64_t targets = 0;  ///< number of targets over which the loss is the mean; 0 when the log lacks it
};

/// A saved checkpoint.
struct Save {
  double seconds = 0;  ///< from the start of the save to its commit; NaN when the log lacks it
  double waited = 0;   ///< part of `seconds` in which no step ran; NaN when the log lacks it
  std::string name{};  ///< last component of its path; empty when the log lacks it
};

/// The log of a run. Steps that a resumed run repeated hold the values of the last repetition.
struct Run {
  std::string path{};                  ///< as given: folder, file or "-"
  std::string name{};                  ///< display name: run_name(path), or one of run_names()
  std::string key{};                   ///< by which it is paired; empty: by its seed
  std::vector<std::int64_t> steps{};   ///< numbers of the steps, increasing
  std::vector<std::int64_t> tokens{};  ///< tokens seen after each step; -1 where the log lacks them
  std::vector<Column> columns{};       ///< the requested fields that were found, in order of appearance
  std::vector<std::string> metrics{};  ///< all numeric fields of step records, in order of appearance
  std::vector<Phase> phases{};         ///< increasing by `first`; the first begins at 0 if there are steps
  std::vector<Settings> settings{};    ///< one per change, increasing by `step`; empty when the log has no config
  std::multimap<std::int64_t, Evaluation> evaluations{};  ///< by the number of the preceding step
  std::multimap<std::int64_t, Save> checkpoints{};        ///< by the number of the step
  std::int64_t start = 0;  ///< number of the first step after the newest run record; 0 if it is the first
  std::vector<std::pair<std::string, std::string>> hosts{};  ///< machines of the newest start, each with its ranks as
                                                             ///< "0-3,8"; empty if it has one
  std::vector<std::int64_t> restarts{};  ///< number of the first step after each restart, but for a planned phase
  std::optional<std::int64_t> planned_steps{};  ///< steps of the whole run, from the last run record that has them
  std::int64_t warnings = 0;                    ///< number of warning records
  bool finished = false;                        ///< whether an end record follows the last step
  std::string reason{};                         ///< reason in the end record; empty without one

  /// Values of a field, one per step; empty when no step has the field or it was not requested.
  std::span<const double> find(std::string_view metric) const;
  /// Index of the first step whose number is not below `step`; their number if there is none.
  std::size_t index_of(std::int64_t step) const;
};

/// The metrics of all runs without repetitions, in order of appearance.
std::vector<std::string> metrics_of(std::span<const Run> runs);

/// Options of read_run().
struct Wanted {
  bool all = false;                                        ///< keep every numeric field; else only `metrics`
  std::vector<std::string> metrics{};                      ///< names of fields
  std::function<void(const std::string& path)> waiting{};  ///< called before a named pipe blocks; see File::open_read()

  /// Whether a field is kept.
  bool has(std::string_view metric) const;
};

/// Reads the log of a run: a folder that contains log.jsonl, a file, or "-" for standard input. Booleans count as 0 and
/// 1, and the time of a step as seconds since 1970 in UTC. A step record whose number is not above the last one
/// replaces all records from that step on (the run was resumed). An incomplete line at the end or before a `run` record
/// is ignored. Records of unknown type, unknown fields and missing fields are no errors. Long logs are parsed in pieces
/// on all processors; the result does not depend on their number. Memory: 8 bytes per step and
/// kept field, 16 per step, some MiB per processor, and about 50 bytes per evaluation, save and phase. Throws Error
/// `path: reason` when the log cannot be read or contains no record of a run, and `path: line L ...: reason` for a line
/// that is not JSON or not a record.
Run read_run(const std::string& path, const Wanted& wanted);

/// Keeps the steps from number `from` to number `to`, with their phases, evaluations, checkpoints and restarts.
void cut_run(Run& run, std::int64_t from, std::int64_t to);

/// The log file of a run: log.jsonl in a folder, else `path`. Throws Error when a folder has none.
std::string log_file(const std::string& path);

/// The last component of a path without ".jsonl"; for ".../run/log.jsonl" the name of the folder.
std::string run_name(const std::string& path);

/// Unique names for several runs: run_name(), or the path where several runs share that name (as "a/run" and "b/run"),
/// with "-2" appended to a repeated path.
std::vector<std::string> run_names(std::span<const std::string> paths);

}  // namespace fp8::log
