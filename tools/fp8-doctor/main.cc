// fp8-doctor: checks whether FP8 can run on this machine and prints hints for what is missing. See fp8-doctor(1).
#include <algorithm>
#include <cstdlib>

#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/probe/job.h"
#include "fp8/probe/report.h"
#include "fp8/train/mpi_session.h"

namespace {

using namespace fp8;

cli::Command command() {
  cli::Command c;
  c.name = "fp8-doctor";
  c.about = "check whether FP8 can run on this machine, or on those of a job, with hints for what is missing";
  c.example = "mpirun -n 8 fp8-doctor --out run";
  c.launched = true;
  c.flags = {
      {.name = "out",
       .kind = cli::FlagKind::path,
       .metavar = "FOLDER",
       .help = "the folder of a run: check its free space, and that all hosts see the same"},
      cli::output_flag("file to write the report to as JSON, besides standard output"),
      cli::json_flag(),
      cli::force_flag(),
      {.name = "timeout",
       .kind = cli::FlagKind::integer,
       .metavar = "SECONDS",
       .default_text = "120",
       .help = "seconds that a step may wait for a rank; 0: no limit",
       .min = 0},
  };
  return c;
}

// The verdict in its colour, five characters wide.
std::string painted(const cli::Style& style, probe::Verdict verdict) {
  const std::string word(name_of(verdict));
  if (verdict == probe::Verdict::pass) return style.green(word) + " ";
  return (verdict == probe::Verdict::fail ? style.red(word) : style.dim(word)) + " ";
}

std::string report(const probe::Diagnosis& diagnosis, const cli::Style& style) {
  std::size_t width = 0;
  for (const probe::Check& c : diagnosis.checks) width = std::max(width, c.name.size());
  std::string text, group;
  for (const probe::Check& c : diagnosis.checks) {
    if (c.group != group) text += (group.empty() ? "" : "\n") + style.bold(c.group) + "\n";
    group = c.group;
    std::string before = "  " + painted(style, c.verdict) + " " + c.name + std::string(width - c.name.size() + 2, ' ');
    for (const std::string& line : probe::lines_of(c)) {
      text += before + terminal_safe(line) + "\n";
      before = std::string(width + 10, ' ');
    }
    if (!c.hint.empty()) text += std::string(width + 10, ' ') + "hint: " + terminal_safe(c.hint) + "\n";
  }
  return text + "\n" + style.bold(terminal_safe(verdict_of(diagnosis))) + "\n";
}

// An environment variable; empty when not set.
std::string variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no code sets it
  return value != nullptr ? value : "";
}

int examine(const cli::Arguments& arguments, comm::Communicator& world) {
  const std::string output = arguments.has("output") ? arguments.text("output") : "";
  const bool writer = comm::is_writer(world);
  comm::agree(world, [&] {
    if (writer && !output.empty()) check_output(output, arguments.flag("force"), {});
  });
  cli::Progress progress(arguments.flag("quiet") || !writer);
  progress.update("running the checks");
  const probe::Environment around{.path = variable("PATH"),
                                  .cpu_isa = variable("FP8_CPU_ISA"),
                                  .inside_mpi = !comm::launcher().name.empty(),
                                  .local_rank = comm::local_rank()};
  const std::string version = cli::version() + (cli::commit().empty() ? "" : " (" + cli::commit() + ")");
  const probe::Diagnosis diagnosis =
      probe::diagnose_job(world, around, version, arguments.has("out") ? arguments.text("out") : "");
  progress.done();
  const int status = static_cast<int>(diagnosis.good() ? Exit::done : Exit::no);
  if (!writer) return status;
  const json::Value record = to_json(diagnosis);
  cli::Output out;
  if (arguments.flag("json")) {
    out.json(record);
  } else {
    out.text(report(diagnosis, cli::Style::for_stdout()));
  }
  if (!output.empty()) probe::save_report(output, arguments.flag("force"), record);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  return cli::run(
      argc, argv, command(),
      [](const cli::Arguments& arguments) {
        return train::run_ranks({"fp8-doctor", arguments.integer("timeout")},
                                [&](comm::Communicator& world) { return examine(arguments, world); });
      },
      train::library_versions());
}
