// fp8-eval: evaluates a checkpoint; under mpirun the ranks share the work. See fp8-eval(1).
#include <unistd.h>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/model/record.h"
#include "fp8/settings/flags.h"
#include "fp8/settings/resume.h"
#include "fp8/train/evaluate.h"
#include "fp8/train/mpi_session.h"
#include "fp8/train/readable.h"

namespace {

using namespace fp8;

int evaluate(const cli::Command& command, const cli::Arguments& arguments, comm::Communicator& host_comm) {
  std::string named = arguments.positional("model");
  settings::check_same_flags(host_comm, cli::resolved(command, arguments), named);
  settings::EvalConfig config;
  comm::agree(host_comm, [&] {
    config = settings::eval_config(arguments);
    if (comm::is_writer(host_comm)) named = model::resolve_checkpoint_argument(named);
  });
  config.model = host_comm.all_gather(named)[0];
  cli::Output out;
  const bool lines = cli::stdout_is_terminal() && !arguments.flag("json");
  cli::Progress progress(arguments.flag("quiet") || !comm::is_writer(host_comm), "fp8-eval");
  std::vector<json::Value> evaluations;
  state::Hooks hooks;
  hooks.record = [&](const json::Value& record) {
    progress.done();
    if (record.as_object().get_string("type", "record") == "eval") evaluations.push_back(record);
    if (!lines) return out.json(record);
    out.line(terminal_safe(train::readable(record)));
  };
  hooks.note = [&](const std::string& text) {
    progress.done();
    if (!arguments.flag("quiet")) cli::print_note("fp8-eval", text);
  };
  hooks.progress = [&](const std::string& text) { progress.update(text); };
  train::evaluate(config, host_comm, hooks);
  if (evaluations.size() > 1 && (lines || !arguments.flag("quiet"))) {
    cli::Output beside(lines ? STDOUT_FILENO : STDERR_FILENO);
    beside.text(cli::table(train::evaluation_table(evaluations)));
  }
  return static_cast<int>(Exit::done);
}

}  // namespace

int main(int argc, char** argv) {
  const fp8::cli::Command command = fp8::settings::eval_command();
  return fp8::cli::run(
      argc, argv, command,
      [&](const fp8::cli::Arguments& arguments) {
        return fp8::train::run_ranks({"fp8-eval", arguments.integer("timeout")},
                                     [&](fp8::comm::Communicator& host_comm) {
                                       return evaluate(fp8::cli::with_common(command), arguments, host_comm);
                                     });
      },
      fp8::train::library_versions());
}
