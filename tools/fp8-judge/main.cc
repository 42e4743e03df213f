// fp8-judge: which candidate made the log-probabilities of rollouts; under mpirun the ranks share the work. See
// fp8-judge(1).
#include "flags.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/model/record.h"
#include "fp8/settings/resume.h"
#include "fp8/train/mpi_session.h"

namespace {

using namespace fp8;

constexpr const char* kName = "fp8-judge";

// The tables and the sentences of the records of a judgement.
void print_text(const std::vector<json::Value>& records, cli::Output& out) {
  out.text(cli::table(judge::candidate_table(records)));
  const auto tokens = judge::token_table(records);
  if (!tokens.empty()) out.text("\n" + cli::table(tokens));
  for (const json::Value& record : records) {
    const json::Object& o = record.as_object();
    const std::string type = o.get_string("type", "record");
    if (type == "gate")
      out.line("gate " + o.get_string("name", type) + ": " + o.get_string("figure", type) + " of " +
               o.get_string("candidate", type) + " is " + format_short(o.get_double("value", type), 4) +
               (o.get_bool("passed", type) ? ", which passes" : ", which fails"));
    if (type == "verdict") out.line(terminal_safe(o.get_string("text", type)));
  }
}

int run(const cli::Command& command, const cli::Arguments& arguments, comm::Communicator& host_comm) {
  std::string model = arguments.positional("model");
  settings::check_same_flags(host_comm, cli::resolved(command, arguments), model);
  judge::JudgeConfig config;
  comm::agree(host_comm, [&] {
    config = judge::config_of(arguments);
    if (comm::is_writer(host_comm)) model = model::resolve_checkpoint_argument(model);
  });
  config.model = host_comm.all_gather(model)[0];
  const bool json = arguments.flag("json"), quiet = arguments.flag("quiet");
  cli::Output out;
  cli::Progress progress(quiet || !comm::is_writer(host_comm), kName);
  std::vector<json::Value> records;
  state::Hooks hooks;
  hooks.record = [&](const json::Value& record) {
    progress.done();
    if (json) return out.json(record);
    records.push_back(record);
  };
  hooks.note = [&](const std::string& text) {
    progress.done();
    if (!quiet) cli::print_note(kName, text);
  };
  hooks.progress = [&](const std::string& text) { progress.update(text); };
  const Exit status = judge::judge(config, host_comm, hooks);
  progress.done();
  if (!json && comm::is_writer(host_comm)) print_text(records, out);
  return static_cast<int>(status);
}

}  // namespace

int main(int argc, char** argv) {
  const fp8::cli::Command command = fp8::judge::command();
  return fp8::cli::run(
      argc, argv, command,
      [&](const fp8::cli::Arguments& arguments) {
        return fp8::train::run_ranks({kName, arguments.integer("timeout")}, [&](fp8::comm::Communicator& host_comm) {
          return run(fp8::cli::with_common(command), arguments, host_comm);
        });
      },
      fp8::train::library_versions());
}
