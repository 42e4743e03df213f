/// A log that is being written: what it says so far, and how long the run will take.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fp8/base/file.h"
#include "fp8/log/run.h"

namespace fp8::log {

class Collector;

/// Reads a log as it grows. A line without a newline is not there yet. A log that is not there yet is no error, and one
/// that was replaced, or cut off, is read from its beginning.
class Follower {
 public:
  /// `path` as for read_run(); nothing is read.
  Follower(std::string path, const Wanted& wanted);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  /// Reads what was written since; returns whether that was anything. Waits for standard input up to `milliseconds`
  /// when nothing is there. Throws Error as read_run(), but for a damaged last line, which a resumed run may follow.
  bool poll(int milliseconds);
  /// The run so far; nothing while there is no log.
  const Run* run() const;
  /// Whether nothing can follow: standard input has ended.
  bool ended() const { return ended_; }

 private:
  bool still_there() const;
  bool reopen();
  std::size_t read_piece_at_most(int milliseconds);

  std::string path_;
  Wanted wanted_;
  File file_;
  std::string file_name_;
  std::string known_;  // last bytes that were read, to know the file again
  std::uint64_t offset_ = 0;
  std::string rest_;  // behind the last newline
  std::unique_ptr<Collector> collector_;
  bool ended_ = false;
};

/// Where a run stands. What the log does not say is missing.
struct Progress {
  std::int64_t steps = 0;                    ///< number of the last step
  std::optional<std::int64_t> planned{};     ///< of the whole run
  std::optional<std::int64_t> tokens{};      ///< seen
  std::optional<double> loss{};              ///< of the last step, when finite
  std::optional<double> eval_loss{};         ///< of the last evaluation, when finite
  std::optional<double> step_s{};            ///< median of the last steps, seconds
  std::optional<double> tokens_per_s{};      ///< median of the last steps
  std::optional<double> seconds_left{};      ///< for the steps that remain, at that pace, without saves and evaluations
  std::optional<std::int64_t> checkpoint{};  ///< step of the last one
};

/// Steps that the medians of Progress look back on.
inline constexpr std::size_t kRecentSteps = 50;

/// Where a run that was read with summary_metrics() stands.
Progress progress(const Run& run);

}  // namespace fp8::log
