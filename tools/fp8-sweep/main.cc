// fp8-sweep: runs every combination of the values and sides of a file. See fp8-sweep(1).
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>

#include "checks.h"
#include "display.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/program.h"
#include "fp8/base/signals.h"
#include "fp8/base/text.h"
#include "fp8/cli/run.h"
#include "fp8/h5/types.h"
#include "fp8/launch/phases.h"

namespace {

using namespace fp8;
using launch::RunState;
using launch::RunStatus;

constexpr const char* kTool = "fp8-sweep";

cli::Command command() {
  cli::Command c;
  c.name = kTool;
  c.about = "run every combination of settings and sides of a file";
  c.example = "fp8-sweep recipes.sweep --jobs 2 -- fp8-step model.h5 --data data.h5 --steps 500";
  c.positionals = {
      {.name = "sweep", .metavar = "SWEEP", .help = "settings with their values and sides, see fp8-sweep(5)"}};
  c.takes_command = true;
  c.flags = {
      {.name = "output",
       .letter = 'o',
       .kind = cli::FlagKind::path,
       .metavar = "DIR",
       .help = "folder that gets a folder for each run [the name of SWEEP without its extension]"},
      {.name = "jobs",
       .kind = cli::FlagKind::integer,
       .metavar = "N",
       .default_text = "1",
       .help = "number of runs at the same time, each on cores of its own",
       .min = 1,
       .max = 4096},
      {.name = "attempts",
       .kind = cli::FlagKind::integer,
       .metavar = "N",
       .default_text = "3",
       .help = "give up a run after this many attempts without a newer checkpoint",
       .min = 1},
      {.name = "print", .help = "print the command of each run, one a line, quoted for a shell, and run nothing"},
      cli::json_flag(),
      cli::dry_run_flag(),
  };
  return c;
}

std::string folder_of(const cli::Arguments& arguments, const std::string& sweep) {
  if (arguments.has("output")) {
    std::string folder = arguments.text("output");
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    return folder;
  }
  const std::filesystem::path path(sweep);
  std::string stem = path.stem().string();
  if (stem.empty() || stem == path.string())
    throw Error("--output: needed, since the name of " + sweep + " has no extension to leave out");
  return stem;
}

// The runs of SWEEP. Throws Error if a program or a flag would stop one of them.
launch::SweepJob job_of(const cli::Arguments& arguments) {
  if (arguments.rest().empty()) throw Error("COMMAND: needed after --");
  for (const char* flag : {"jobs", "attempts", "json", "dry-run"}) {
    if (arguments.flag("print") && arguments.has(flag))
      throw Error("--" + std::string(flag) + ": not together with --print");
  }
  const std::string path = arguments.positional("sweep");
  launch::SweepJob job;
  job.folder = folder_of(arguments, path);
  check_not_of_run(job.folder);
  const bool quiet = arguments.flag("quiet");
  const launch::Sweep sweep = launch::read_sweep(path, cli::waiting_note(kTool, quiet));
  job.runs = runs_of(sweep);
  job.command = arguments.rest();
  job.jobs = static_cast<std::size_t>(arguments.integer("jobs"));
  job.attempts = arguments.integer("attempts");
  if (!arguments.flag("print")) check_program(job.command.front());
  checks::check_runs(sweep, job, !arguments.flag("print"), [&](const std::string& note) {
    if (!quiet) cli::print_note(kTool, note);
  });
  return job;
}

json::Value record_of(const RunStatus& s) {
  json::Value settings = json::object({});
  for (const auto& [name, value] : s.run->settings) settings.as_object().set(name, value);
  const auto or_null = [](const std::string& text) { return text.empty() ? json::Value() : json::Value(text); };
  const bool ended = s.state == RunState::finished || s.state == RunState::diverged || s.state == RunState::failed;
  return json::object({{"type", "sweep"},
                       {"run", s.folder},
                       {"side", or_null(s.run->side)},
                       {"settings", std::move(settings)},
                       {"state", launch::name_of(s.state)},
                       {"status", ended ? json::Value(static_cast<int>(s.status)) : json::Value()},
                       {"reason", or_null(s.reason)},
                       {"stderr_line", or_null(s.tail)}});
}

std::size_t count(std::span<const RunStatus> runs, RunState state) {
  return static_cast<std::size_t>(
      std::count_if(runs.begin(), runs.end(), [&](const RunStatus& r) { return r.state == state; }));
}

// Prints what fp8-log prints about the runs that have a log. fp8-log is beside this program.
void print_table(std::span<const RunStatus> runs) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fp8-log";
  std::vector<std::string> words = {program};
  for (const RunStatus& r : runs) {
    std::error_code none;
    const std::uintmax_t bytes = std::filesystem::file_size(r.folder + "/log.jsonl", none);
    if (!none && bytes > 0) words.push_back(r.folder);
  }
  if (words.size() == 1) return;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  if (const int error = ::posix_spawn(&child, program.c_str(), nullptr, nullptr, argv.data(), environ); error != 0)
    throw_errno(program, "cannot be run", error);
  int ended = 0;
  while (::waitpid(child, &ended, 0) < 0) {
    if (errno != EINTR) throw_errno(program, "cannot be waited for", errno);
  }
  if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0)
    throw Error("the table could not be printed; fp8-log prints it again");
}

void print_results(std::span<const RunStatus> runs, bool as_json) {
  if (!as_json) return print_table(runs);
  cli::Output out;
  for (const RunStatus& r : runs) out.json(record_of(r));
}

// "12 runs: 10 finished, 1 diverged, 1 failed".
std::string summary_of(std::span<const RunStatus> runs) {
  std::string text;
  for (const RunState state : {RunState::finished, RunState::diverged, RunState::failed, RunState::stopped,
                               RunState::unfinished, RunState::fresh}) {
    const std::size_t n = count(runs, state);
    if (n > 0) text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + display::text_of(state);
  }
  return std::to_string(runs.size()) + (runs.size() == 1 ? " run: " : " runs: ") + text;
}

int dry_run(const launch::SweepJob& job, bool as_json) {
  cli::Output out;
  for (const RunStatus& r : launch::earlier_runs(job)) {
    if (as_json) {
      out.json(record_of(r));
    } else {
      out.line(display::line_of(r));
    }
  }
  return static_cast<int>(Exit::done);
}

int sweep(const cli::Arguments& arguments) {
  const launch::SweepJob job = job_of(arguments);
  if (arguments.flag("print")) {
    cli::Output out;
    for (const launch::SweepRun& run : job.runs) out.line(launch::shell_text(launch::command_of(job, run)));
    return static_cast<int>(Exit::done);
  }
  if (arguments.flag("dry-run")) return dry_run(job, arguments.flag("json"));
  const std::vector<RunStatus> before = launch::earlier_runs(job);
  const std::size_t ended = count(before, RunState::finished) + count(before, RunState::diverged);
  display::Display display(kTool, job.runs.size(), ended, arguments.flag("quiet"));
  if (ended < before.size()) display.note(job.folder + ": " + summary_of(before));
  const std::vector<RunStatus> runs = launch::run_sweep(
      job, {[&](const RunStatus& status, launch::RunEvent event) { display.update(status, event); },
            [&](int signal, std::size_t running) {
              display.note(signal_name(signal) + ": asking " + counted(running, "job") + " to save and stop");
            }});
  const Exit status = launch::sweep_exit(runs);
  display.note(job.folder + ": " + summary_of(runs) +
               (status == Exit::again ? "; the same command continues the sweep" : ""));
  if (status != Exit::again || arguments.flag("json")) print_results(runs, arguments.flag("json"));
  return static_cast<int>(status);
}

}  // namespace

int main(int argc, char** argv) { return cli::run(argc, argv, command(), sweep, {h5::library_version()}); }
