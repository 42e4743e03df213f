/// The report of fp8-bench for people.
#pragma once

#include <string>

#include "fp8/cli/output.h"
#include "fp8/probe/bench.h"

namespace fp8::bench {

/// Where and what, a table of products, and whether FP8 pays.
std::string report(const probe::BenchOptions& options, const probe::BenchResult& result, const cli::Style& style);

}  // namespace fp8::bench
