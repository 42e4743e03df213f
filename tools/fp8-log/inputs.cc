// Reading of the runs that are given as arguments.
#include "inputs.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/cli/run.h"

namespace fp8::report {

std::vector<std::string> paths_of(const cli::Arguments& arguments) {
  std::vector<std::string> paths = arguments.positionals("runs");
  if (paths.empty()) {
    if (::isatty(STDIN_FILENO) == 1) throw Error("RUN: needed (a run's folder, its log, or - for standard input)");
    paths.emplace_back("-");
  }
  if (std::count(paths.begin(), paths.end(), "-") > 1) throw Error("-: standard input can be read only once");
  return paths;
}

log::Wanted wanted(const cli::Arguments& arguments, bool all, std::vector<std::string> metrics) {
  return {.all = all, .metrics = std::move(metrics), .waiting = cli::waiting_note("fp8-log", arguments.flag("quiet"))};
}

std::vector<std::string> files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code ignored;
    const bool folder = std::filesystem::is_directory(path, ignored);
    for (const char* file : {"/log.jsonl", "/tensors.jsonl"}) files.push_back(folder ? path + file : path);
  }
  return files;
}

void check_elsewhere(const cli::Arguments& arguments, const std::vector<std::string>& paths) {
  if (!arguments.has("output") || arguments.text("output") == "-") return;
  std::error_code ignored;  // a folder is not replaced
  if (!std::filesystem::is_directory(arguments.text("output"), ignored))
    check_not_input(arguments.text("output"), files_of(paths));
  check_not_of_run(arguments.text("output"));
}

std::vector<log::Run> read_all(const cli::Arguments& arguments, const std::vector<std::string>& paths,
                               const log::Wanted& kept) {
  check_elsewhere(arguments, paths);
  const std::vector<std::string> names = log::run_names(paths);
  std::vector<log::Run> runs;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    runs.push_back(log::read_run(paths[i], kept));
    runs.back().name = names[i];
  }
  return runs;
}

void cut_runs(const cli::Arguments& arguments, std::span<log::Run> runs) {
  if (!arguments.has("from") && !arguments.has("to")) return;
  const std::int64_t from = arguments.has("from") ? arguments.integer("from") : 0;
  const std::int64_t to = arguments.has("to") ? arguments.integer("to") : std::numeric_limits<std::int64_t>::max();
  for (log::Run& run : runs) {
    log::cut_run(run, from, to);
    if (run.steps.empty()) throw Error(run.path + ": has no steps from --from to --to");
  }
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = list.find(',', begin);
    parts.push_back(list.substr(begin, end - begin));
  }
  return parts;
}

std::vector<std::string> runs_of_list(const std::string& flag, const std::string& list) {
  if (std::filesystem::exists(list)) return {list};
  std::vector<std::string> parts = parts_of(list);
  if (std::count(parts.begin(), parts.end(), "") > 0) throw Error("--" + flag + ": \"" + list + "\": an empty name");
  return parts;
}

}  // namespace fp8::report
