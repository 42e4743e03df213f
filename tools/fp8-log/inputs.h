/// The runs that fp8-log reads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fp8/cli/arguments.h"
#include "fp8/log/run.h"

namespace fp8::report {

/// The paths given as RUN; "-" without any. Throws Error when nothing is given and standard input is a terminal, and
/// when standard input is given twice.
std::vector<std::string> paths_of(const cli::Arguments& arguments);

/// The fields of a log to keep.
log::Wanted wanted(const cli::Arguments& arguments, bool all, std::vector<std::string> metrics);

/// The files of runs that are read. A plot or an export may replace other files in their folders.
std::vector<std::string> files_of(const std::vector<std::string>& paths);

/// Throws Error if --output would replace a file of a run that is read.
void check_elsewhere(const cli::Arguments& arguments, const std::vector<std::string>& paths);

/// Reads several runs, which get different names.
std::vector<log::Run> read_all(const cli::Arguments& arguments, const std::vector<std::string>& paths,
                               const log::Wanted& kept);

/// Keeps the steps from --from to --to. Throws Error when a run has none.
void cut_runs(const cli::Arguments& arguments, std::span<log::Run> runs);

/// The runs of a list with commas, or the path of one run that contains commas. Throws Error `--FLAG: ...` when a name
/// is empty.
std::vector<std::string> runs_of_list(const std::string& flag, const std::string& list);

/// The parts of a list with commas.
std::vector<std::string> parts_of(const std::string& list);

}  // namespace fp8::report
