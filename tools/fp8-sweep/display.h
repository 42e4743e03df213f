/// Lines about the runs of a sweep on standard error: one for each start and end, and on a terminal also one for each
/// running job, redrawn in place.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fp8/cli/output.h"
#include "fp8/launch/run_sweep.h"

namespace fp8::display {

/// The state of a run as a line without newline, such as "bf16_seed=1: finished in 12 s, step 100, loss 2.31".
std::string line_of(const launch::RunStatus& status);

/// A state in words: "not started", "finished".
std::string text_of(launch::RunState state);

/// Prints the lines.
class Display {
 public:
  /// `tool` begins each line. `runs` counts all runs, `ended` those of earlier sweeps that are skipped. With `quiet`
  /// only failed and diverged runs have a line.
  Display(std::string tool, std::size_t runs, std::size_t ended, bool quiet);

  /// Shows that the status of a run has changed. The status must exist until the run has ended.
  void update(const launch::RunStatus& status, launch::RunEvent event);
  /// Prints a line, unless quiet.
  void note(const std::string& text);

 private:
  void print(const std::string& text);
  void redraw();

  std::string tool_;
  std::size_t runs_, ended_;
  bool quiet_;
  cli::Progress progress_;
  std::vector<const launch::RunStatus*> running_;  // in the order of their starts
};

}  // namespace fp8::display
