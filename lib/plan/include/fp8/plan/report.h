/// The text of plans: tables and verdicts for a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp8/plan/search.h"

namespace fp8::plan {

/// The plans of several recipes: memory, whether they fit, speed, terms and the verdict. A column for each, or, where
/// that is wider than 100 columns, a row with a part of it.
std::string table_of(const Question& q, const std::vector<Estimate>& estimates);

/// The time of each unit in a micro-batch, layers of equal times in one row.
std::string table_of_units(const std::vector<Estimate>& estimates);

/// Whether FP8 pays, in one line: "tensorwise: 1.28 to 1.41 times bf16", or why not. `bf16` and `one` have speeds.
std::string verdict(const Estimate& bf16, const Estimate& one);

/// What would make a run fit, a line each; empty without changes that save memory.
std::string text_of(const std::vector<Change>& changes);

/// A line that says what sharded_gradients() saves of a run; empty without it.
std::string text_of(const Estimate& e, const std::optional<Change>& sharded);

/// The settings that --fit found, and those of the flags for comparison.
std::string table_of(const Question& q, const Fit& fit, const Estimate& asked);

/// Plans for several numbers of ranks, and the verdict on the last.
std::string table_of_sweep(const std::vector<Pair>& all);

/// The fastest in the middle of its interval of those that fit, among the estimates of `recipes`, the last of `all`;
/// null if none fits, or without a machine.
const Estimate* fastest_of(const std::vector<Estimate>& all, const std::vector<std::string>& recipes);

/// The command that runs a plan: "mpirun -n 8 fp8-step MODEL.h5 --data DATA.h5 --out RUN ..."; nothing for nvfp4 on a
/// GPU, which fp8-step does not compute.
std::optional<std::string> command_of(const settings::PlanConfig& config, const Estimate& e);

/// command_of(), or why there is none, as a line.
std::string text_of_command(const settings::PlanConfig& config, const Estimate& e);

}  // namespace fp8::plan
