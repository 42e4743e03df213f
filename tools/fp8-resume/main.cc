// fp8-resume: runs a training command until its run is complete. See fp8-resume(1).
#include "fp8/base/error.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/h5/types.h"
#include "fp8/launch/supervise.h"
#include "fp8/launch/variants.h"

namespace {

using namespace fp8;

constexpr const char* kTool = "fp8-resume";

cli::Command command() {
  cli::Command c;
  c.name = kTool;
  c.about = "run a training command to its end, from checkpoint to checkpoint";
  c.example = "fp8-resume run --phases warmup.phases -- mpirun -n 2 fp8-step model.h5 --data data.h5";
  c.positionals = {{.name = "run", .metavar = "RUN", .help = "folder of the run"}};
  c.takes_command = true;
  c.flags = {
      {.name = "phases",
       .kind = cli::FlagKind::path,
       .metavar = "FILE",
       .help = "phases of the run: one line each with its last step and its flags, see fp8-phases(5)"},
      {.name = "attempts",
       .kind = cli::FlagKind::integer,
       .metavar = "N",
       .default_text = "3",
       .help = "give up after this many attempts without a newer checkpoint",
       .min = 1},
      {.name = "print", .help = "print the path of the newest valid checkpoint and exit; status 1 if there is none"},
      {.name = "best",
       .help = "with --print: the valid checkpoint with the lowest evaluation loss, instead of the newest"},
      cli::json_flag(),
      cli::dry_run_flag(),
  };
  return c;
}

void check_flags(const cli::Arguments& arguments) {
  const bool print = arguments.flag("print"), runs = !arguments.rest().empty();
  if (print && runs) throw Error("--print: not together with a command");
  for (const char* flag : {"phases", "attempts", "dry-run"}) {
    if (print && arguments.has(flag)) throw Error("--" + std::string(flag) + ": not together with --print");
  }
  if (arguments.flag("best") && !print) throw Error("--best: only with --print");
  if (arguments.flag("json") && !print) throw Error("--json: only with --print; a run prints JSON Lines anyway");
  if (!print && !runs) throw Error("COMMAND: needed after -- (or --print)");
}

int print_checkpoint(const std::string& run, ckpt::Which which, bool json,
                     const std::function<void(const std::string&)>& note) {
  std::string reason;
  const auto damaged = [&](const json::Value& record) {
    if (reason.empty()) reason = "; the newest: " + record.as_object().get_string("reason", "record");
  };
  const auto found = launch::find_checkpoint(run, which, damaged, note);
  if (!found)
    throw Error(
        run + ": no checkpoint " + (which == ckpt::Which::best ? "with an evaluation loss" : "to resume from") + reason,
        Exit::no);
  cli::Output out;
  if (json) {
    out.json(json::object({{"type", "checkpoint"}, {"path", found->path}}));
  } else {
    out.line(found->path);
  }
  return static_cast<int>(Exit::done);
}

// Throws Error `file:LINE: reason` for a phase whose flags fp8-step refuses. Only flags are checked, since a phase goes
// on in the precision of the one before. What the command itself lacks is reported when it starts.
void check_phases(const launch::Job& job) {
  std::vector<std::vector<std::string>> variants = {{"--out", job.run}};
  for (std::size_t i = 0; i < job.phases->list.size(); ++i) {
    const std::vector<std::string> words = launch::command_line(job.command, job.run, &*job.phases, i);
    variants.emplace_back(words.begin() + static_cast<std::ptrdiff_t>(job.command.size()), words.end());
  }
  std::optional<std::vector<launch::Verdict>> found;
  try {
    found = launch::verdicts_of(job.command, variants, launch::Depth::flags);
  } catch (const Error&) {
    return;
  }
  for (std::size_t i = 1; found && i < found->size(); ++i) {
    const launch::Verdict& verdict = (*found)[i];
    if (!verdict.reason.empty() && verdict.reason != found->front().reason)
      throw Error(job.phases->name + ":" + std::to_string(job.phases->list[i - 1].line) + ": " + verdict.reason,
                  verdict.status);
  }
}

int resume(const cli::Arguments& arguments) {
  check_flags(arguments);
  const bool quiet = arguments.flag("quiet");
  const auto note = [&](const std::string& line) {
    if (!quiet) cli::print_note(kTool, line);
  };
  std::string run = arguments.positional("run");
  while (run.size() > 1 && run.ends_with('/')) run.pop_back();
  if (arguments.flag("print"))
    return print_checkpoint(run, arguments.flag("best") ? ckpt::Which::best : ckpt::Which::last, arguments.flag("json"),
                            note);
  launch::Job job;
  job.run = run;
  if (arguments.has("phases"))
    job.phases = launch::read_phases(arguments.text("phases"), cli::waiting_note(kTool, quiet));
  job.attempts = arguments.integer("attempts");
  job.command = arguments.rest();
  job.dry_run = arguments.flag("dry-run");
  if (job.phases) check_phases(job);
  cli::Output out, err(2);
  const launch::Hooks hooks{[&](const json::Value& record) { out.json(record); }, note,
                            [&](std::string_view lines) { out.text(lines); },
                            [&](std::string_view bytes) {
                              try {
                                err.text(bytes);
                              } catch (...) {  // a failed stderr cannot be reported and does not stop the run
                              }
                            }};
  return static_cast<int>(launch::supervise(job, hooks));
}

}  // namespace

int main(int argc, char** argv) { return cli::run(argc, argv, command(), resume, {h5::library_version()}); }
