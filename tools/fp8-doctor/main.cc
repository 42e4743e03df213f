// fp8-doctor: checks whether FP8 can run on this machine and prints hints for what is missing. See fp8-doctor(1).
#include <algorithm>
#include <cstdlib>

#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/probe/doctor.h"
#include "fp8/probe/report.h"
#include "fp8/train/mpi_session.h"

namespace {

using namespace fp8;

cli::Command command() {
  cli::Command c;
  c.name = "fp8-doctor";
  c.about = "check whether FP8 can run on this machine, with hints for what is missing";
  c.example = "fp8-doctor -o doctor.json";
  c.flags = {cli::output_flag("file to write the report to as JSON, besides standard output"), cli::json_flag(),
             cli::force_flag()};
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
    text += "  " + painted(style, c.verdict) + " " + c.name + std::string(width - c.name.size() + 2, ' ') +
            terminal_safe(c.detail) + "\n";
    if (!c.hint.empty()) text += std::string(width + 10, ' ') + "hint: " + terminal_safe(c.hint) + "\n";
  }
  return text + "\n" + style.bold(terminal_safe(verdict_of(diagnosis))) + "\n";
}

// An environment variable; empty when not set.
std::string variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no code sets it
  return value != nullptr ? value : "";
}

// Prints a note if the launcher started more processes than MPI connects, on the first of them. MPI is not started:
// without a PMI that it understands, which launched() finds, each process would be a world of one rank.
void warn_of_ranks(const std::string& tool) {
  const comm::Launcher launcher = comm::launcher();
  const std::string wrong = train::wrong_ranks(launcher, comm::launched() ? launcher.tasks : 1, {});
  if (!wrong.empty() && comm::job_rank() == 0) cli::print_note(tool, wrong);
}

int examine(const cli::Arguments& arguments) {
  const std::string output = arguments.has("output") ? arguments.text("output") : "";
  if (!output.empty()) check_output(output, arguments.flag("force"), {});
  warn_of_ranks("fp8-doctor");
  cli::Progress progress(arguments.flag("quiet"));
  progress.update("running the checks");
  const bool inside_mpi = !variable("OMPI_COMM_WORLD_SIZE").empty() || !variable("PMIX_RANK").empty();
  const probe::Diagnosis diagnosis = probe::diagnose({"", variable("PATH"), variable("FP8_CPU_ISA"), inside_mpi});
  progress.done();
  const json::Value record = to_json(diagnosis);
  cli::Output out;
  if (arguments.flag("json")) {
    out.json(record);
  } else {
    out.text(report(diagnosis, cli::Style::for_stdout()));
  }
  if (!output.empty()) probe::save_report(output, arguments.flag("force"), record);
  return static_cast<int>(diagnosis.native ? Exit::done : Exit::no);
}

}  // namespace

int main(int argc, char** argv) { return cli::run(argc, argv, command(), examine, fp8::train::library_versions()); }
