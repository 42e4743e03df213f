/// How often a run was started without getting further, kept in the run's folder so that a restart of the machine does
/// not forget it. Not in a checkpoint: nothing there depends on attempts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::launch {

/// The file RUN/attempts.json. Every change is on the disk before the call returns, and appears whole or not at all.
class Attempts {
 public:
  /// Reads the file; none is no attempts. `job` is what is run: counts of another job are forgotten. Throws Error
  /// `path: reason` for a damaged file.
  Attempts(const std::string& run, json::Value job);

  /// The newest valid checkpoint is of `step` (0 for none). When that is above all steps seen before, there are no
  /// attempts without progress. Returns whether it was. Writes nothing.
  bool observe(std::int64_t step);
  /// Attempts since the last progress.
  std::int64_t count() const { return count_; }
  /// Counts one more, before it is started.
  void begin();
  /// The one begun last does not count: it did what it was asked, or its failure is final.
  void forgive();
  /// How the one begun last ended ("status 1") and the last lines that it said.
  void failed(const std::string& how, const std::vector<std::string>& said);
  /// Removes the file.
  void clear();

  /// How the last failed one ended; empty when unknown.
  const std::string& how() const { return how_; }
  /// What the last failed one said last.
  const std::vector<std::string>& said() const { return said_; }
  /// Path of the file.
  const std::string& path() const { return path_; }

 private:
  void read();
  void write() const;

  std::string path_;
  json::Value job_;
  std::int64_t step_ = 0;  // highest step of a valid checkpoint so far
  std::int64_t count_ = 0;
  std::string how_;
  std::vector<std::string> said_;
};

}  // namespace fp8::launch
