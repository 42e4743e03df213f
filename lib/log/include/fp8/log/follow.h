/// Reads a log while it is being written, and estimates the remaining time of the run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fp8/base/file.h"
#include "fp8/log/run.h"

namespace fp8::log {

class Collector;

/// Reads a log as it grows. A last line without a newline is left for the next read. A log that does not exist yet is
/// no error; a log that was replaced or truncated is read again from its beginning.
class Follower {
 public:
  /// `path` as for read_run(). Reads nothing yet.
  Follower(std::string path, const Wanted& wanted);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  /// Reads what was appended since the last call; returns whether anything was. Waits up to `milliseconds` for standard
  /// input. Throws Error as read_run(), except for a damaged last line, which a resumed run may follow.
  bool poll(int milliseconds);
  /// The run so far; nullptr while the log does not exist.
  const Run* run() const;
  /// Whether standard input has ended, so that nothing can follow.
  bool ended() const { return ended_; }

 private:
  bool still_there() const;
  bool reopen();
  std::size_t read_piece_at_most(int milliseconds);

  std::string path_;
  Wanted wanted_;
  File file_;
  std::string file_name_;
  std::string known_;  // last bytes that were read, to detect a replaced file
  std::uint64_t offset_ = 0;
  std::string rest_;  // bytes after the last newline
  std::unique_ptr<Collector> collector_;
  bool ended_ = false;
};

/// Progress of a run. Values that the log lacks are nullopt.
struct Progress {
  std::int64_t steps = 0;                    ///< number of the last step
  std::optional<std::int64_t> planned{};     ///< steps of the whole run
  std::optional<std::int64_t> tokens{};      ///< tokens seen
  std::optional<double> loss{};              ///< loss of the last step, when finite
  std::optional<double> eval_loss{};         ///< loss of the last evaluation, when finite
  std::optional<double> step_s{};            ///< median of the last kRecentSteps steps, seconds
  std::optional<double> tokens_per_s{};      ///< median of the last kRecentSteps steps
  std::optional<double> seconds_left{};      ///< remaining steps times step_s; without saves and evaluations
  std::optional<std::int64_t> checkpoint{};  ///< step of the last checkpoint
};

/// Number of steps over which Progress takes its medians.
inline constexpr std::size_t kRecentSteps = 50;

/// Progress of a run that was read with summary_metrics().
Progress progress(const Run& run);

}  // namespace fp8::log
