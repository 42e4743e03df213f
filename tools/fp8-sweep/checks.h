/// Checks of the runs of a sweep before the first of them starts.
#pragma once

#include <functional>
#include <string>

#include "fp8/launch/run_sweep.h"

namespace fp8::checks {

/// Throws Error `place: FLAG: reason` if COMMAND or a flag of the sweep keeps fp8-step from training, as --dry-run
/// does, and Error `place: run RUN: reason` if fp8-step refuses a run; the place is the line of its side or setting, or
/// the command. `needs_files`: whether a model or data that do not exist are an error. Calls `note` once if the command
/// is another program, whose flags are not known.
void check_runs(const launch::Sweep& sweep, const launch::SweepJob& job, bool needs_files,
                const std::function<void(const std::string&)>& note);

}  // namespace fp8::checks
