/// The text of plans: tables and verdicts for a terminal.
#pragma once

#include <string>
#include <vector>

#include "fp8/plan/search.h"

namespace fp8::plan {

/// The plans of several recipes beside each other: memory, whether they fit, speed, terms and the verdict.
std::string table_of(const Question& q, const std::vector<Estimate>& estimates);

/// The time of each unit in a micro-batch, layers of equal times in one row.
std::string table_of_units(const std::vector<Estimate>& estimates);

/// Whether FP8 pays, in one line: "tensorwise: 1.28 to 1.41 times bf16", or why not. `bf16` and `one` have speeds.
std::string verdict(const Estimate& bf16, const Estimate& one);

/// What would make a run fit, a line each; empty without changes that save memory.
std::string text_of(const std::vector<Change>& changes);

/// The settings that --fit found, and those of the flags for comparison.
std::string table_of(const Question& q, const Fit& fit, const Estimate& asked);

/// Plans for several numbers of ranks.
std::string table_of_sweep(const std::vector<Estimate>& estimates);

/// The command that runs a plan: "mpirun -n 8 fp8-step MODEL.h5 --data DATA.h5 --out RUN ...".
std::string command_of(const settings::PlanConfig& config, const Estimate& e);

}  // namespace fp8::plan
