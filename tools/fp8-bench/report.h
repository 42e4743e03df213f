/// Text report of fp8-bench.
#pragma once

#include <string>

#include "fp8/cli/output.h"
#include "fp8/plan/machine.h"
#include "fp8/probe/bench.h"

namespace fp8::bench {

/// The options, a table of linears and one of steps, and whether FP8 is faster.
std::string report(const probe::BenchOptions& options, const probe::BenchResult& result, const cli::Style& style);

/// A table of the main rates of a machine that was measured.
std::string report(const plan::Machine& machine);

}  // namespace fp8::bench
