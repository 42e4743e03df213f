/// Counts the attempts of a run without progress, in a file of the run's folder so that the count survives a reboot.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::launch {

/// The file RUN/attempts.json. Every change is atomic and on the disk before the call returns.
class Attempts {
 public:
  /// Reads the file; a missing file means no attempts. `job` identifies the command and the phases: the count of
  /// another job is ignored. Throws Error `path: reason` for a damaged file.
  Attempts(const std::string& run, json::Value job);

  /// Records that the newest valid checkpoint is of `step` (0 for none). Resets the count and returns true when `step`
  /// is above all steps observed before. Does not write the file.
  bool observe(std::int64_t step);
  /// Number of attempts since the last progress.
  std::int64_t count() const { return count_; }
  /// Adds one attempt; call before the command is started.
  void begin();
  /// Subtracts the last attempt: it stopped on request, or its failure is final.
  void forgive();
  /// Records how the last attempt ended ("status 1") and its stderr tail.
  void failed(const std::string& how, const std::vector<std::string>& said);
  /// Removes the file.
  void clear();

  /// How the last failed attempt ended; empty when unknown.
  const std::string& how() const { return how_; }
  /// Stderr tail of the last failed attempt.
  const std::vector<std::string>& stderr_tail() const { return stderr_tail_; }
  /// Path of the file.
  const std::string& path() const { return path_; }

 private:
  void read(const json::Object& fields);
  void write() const;

  std::string path_;
  json::Value job_;
  std::int64_t step_ = 0;  // highest step of a valid checkpoint so far
  std::int64_t count_ = 0;
  std::string how_;
  std::vector<std::string> stderr_tail_;
};

}  // namespace fp8::launch
