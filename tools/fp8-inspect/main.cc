// fp8-inspect: what FP8 does to each linear of a checkpoint; under mpirun the ranks share the batch. See
// fp8-inspect(1).
#include "fp8/base/error.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/inspect/inspect.h"
#include "fp8/model/record.h"
#include "fp8/settings/flags.h"
#include "fp8/settings/resume.h"
#include "fp8/statistics/records.h"
#include "fp8/train/mpi_session.h"
#include "report.h"

namespace {

using namespace fp8;

int inspect_checkpoint(const cli::Command& command, const cli::Arguments& arguments, comm::Communicator& host_comm) {
  std::string named = arguments.positional("model");
  settings::check_same_flags(host_comm, cli::resolved(command, arguments), named);
  settings::InspectConfig config;
  comm::agree(host_comm, [&] {
    config = settings::inspect_config(arguments);
    if (comm::is_writer(host_comm)) named = model::resolve_checkpoint_argument(named);
  });
  config.model = host_comm.all_gather(named)[0];
  cli::Output out;
  cli::Progress progress(arguments.flag("quiet") || !comm::is_writer(host_comm), "fp8-inspect");
  const bool json = arguments.flag("json");
  std::vector<json::Value> records;  // records for the table
  state::Hooks hooks;
  hooks.record = [&](const json::Value& record) {
    progress.done();
    if (json) return out.json(record);
    records.push_back(record);
  };
  hooks.note = [&](const std::string& text) {
    progress.done();
    if (!arguments.flag("quiet")) cli::print_note("fp8-inspect", text);
  };
  hooks.progress = [&](const std::string& text) { progress.update(text); };
  const Exit status = inspect::inspect_checkpoint(config, host_comm, hooks);
  out.text(report::text_of(records, config.top > 0 ? static_cast<std::size_t>(config.top) : statistics::kAllRows,
                           cli::stdout_is_terminal() ? static_cast<std::size_t>(cli::terminal_columns()) : 0));
  return static_cast<int>(status);
}

}  // namespace

int main(int argc, char** argv) {
  const fp8::cli::Command command = fp8::settings::inspect_command();
  return fp8::cli::run(
      argc, argv, command,
      [&](const fp8::cli::Arguments& arguments) {
        return fp8::train::run_ranks({"fp8-inspect", arguments.integer("timeout")},
                                     [&](fp8::comm::Communicator& host_comm) {
                                       return inspect_checkpoint(fp8::cli::with_common(command), arguments, host_comm);
                                     });
      },
      fp8::train::library_versions());
}
