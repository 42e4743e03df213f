// fp8-step: trains a model with optimizer steps sharded over the ranks of mpirun. See fp8-step(1).
#include <csignal>
#include <iostream>
#include <span>

#include "fp8/base/error.h"
#include "fp8/base/signals.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/cli/signals.h"
#include "fp8/json/json.h"
#include "fp8/model/record.h"
#include "fp8/settings/flags.h"
#include "fp8/settings/resume.h"
#include "fp8/train/command_check.h"
#include "fp8/train/mpi_session.h"
#include "fp8/train/readable.h"
#include "fp8/train/run.h"

namespace {

using namespace fp8;

// Prints for each line of standard input whether this command would start with the flags of the line behind its own.
int check_variants(const cli::Arguments& given, std::span<char* const> argv) {
  train::CommandCheck command;
  const bool all = given.flag("dry-run") || given.flag("print-config");
  cli::Output out;
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> words(argv.begin() + 1, argv.end());
    const json::Value flags = json::parse(line, "standard input");
    if (!flags.is_array()) throw Error("standard input: expected arrays of strings");
    for (const json::Value& flag : flags.as_array()) words.push_back(flag.as_string());
    json::Value error, status = static_cast<int>(Exit::done);
    std::string gradients;
    try {
      if (all) {
        gradients = command.check(words, given.flag("dry-run"));
      } else {
        train::CommandCheck::check_flags(words);
      }
    } catch (const Error& e) {
      error = cli::error_message(e), status = static_cast<int>(e.code());
    }
    json::Value record =
        json::object({{"type", "variant"}, {"error", std::move(error)}, {"status", std::move(status)}});
    if (!gradients.empty()) record.as_object().set("gradients", gradients);
    out.json(record);
  }
  return static_cast<int>(Exit::done);
}

int step(const cli::Command& command, const cli::Arguments& given, const model::Origin& origin,
         cli::StopSignals& signals, comm::Communicator& host_comm) {
  settings::RunConfig config;
  json::Value flags;
  const bool print = given.flag("print-config");
  comm::agree(host_comm, [&] { flags = cli::resolved(command, settings::with_config(command, given)); });
  json::Value all_flags = flags;
  all_flags.as_object().set("print-config", print);
  all_flags.as_object().set("dry-run", given.flag("dry-run"));
  json::Array change;
  for (const std::string& names : given.list("change")) change.emplace_back(names);
  all_flags.as_object().set("change", std::move(change));
  settings::check_same_flags(host_comm, all_flags, given.positional("model"));
  cli::Output out;
  comm::agree(host_comm, [&] {
    config = settings::step_config(settings::with_config(command, given));
    config.model = given.positional("model");
  });
  config.flags = flags;
  if (print) {
    flags = train::printed_config(config, host_comm);
    if (comm::is_writer(host_comm)) out.line(json::dump(flags, 2));
    return static_cast<int>(Exit::done);
  }
  const std::int64_t timeout = flags.as_object().get_int("timeout", "--timeout");
  if (timeout != given.integer("timeout"))
    train::watch_ranks(host_comm, "fp8-step", timeout);  // set in the config file
  std::string named = config.model;
  comm::agree(host_comm, [&] {
    if (comm::is_writer(host_comm)) named = model::resolve_checkpoint_argument(config.model);
  });
  config.model = host_comm.all_gather(named)[0];
  config.tool_version = origin.version;
  config.command = origin.command;
  const bool quiet = given.flag("quiet");
  const bool lines = cli::stdout_is_terminal() && !given.flag("json");
  cli::Progress progress(quiet || !comm::is_writer(host_comm), "fp8-step");
  state::Hooks hooks;
  hooks.record = [&](const json::Value& record) {
    progress.done();
    if (!lines) return out.json(record);
    const std::string line = train::readable(record);
    if (!line.empty()) out.line(terminal_safe(line));
  };
  hooks.progress = [&](const std::string& text) { progress.update(text); };
  hooks.warning = [&](const std::string& text) {
    progress.done();
    cli::print_note("fp8-step", text);
  };
  hooks.note = [&](const std::string& text) {
    progress.done();
    if (!quiet) cli::print_note("fp8-step", text);
  };
  hooks.begins = [&] { signals.begin(); };
  hooks.stop_requested = [&] { return signals.requested(); };
  return static_cast<int>(train::run(config, host_comm, hooks));
}

// Callbacks for requests to stop. With several ranks only rank 0 prints, and it ends first. It prints nothing on TERM,
// which mpirun sends to end the ranks after an error that was printed before.
cli::StopSignals::Hooks on_request(bool quiet) {
  const int rank = comm::job_rank();
  const std::string who = rank == 0 ? "" : comm::job_rank_text() + ": ";
  cli::StopSignals::Hooks on;
  on.early = [=](int signal) {
    train::let_first_rank_print();
    if (!quiet && (!comm::launched() || (rank == 0 && signal != SIGTERM)))
      cli::print_note("fp8-step", signal_name(signal) + ": ended before the first step");
    comm::abort_all(static_cast<int>(Exit::again));
  };
  on.first = [=](int signal) {
    if (!quiet && signal == SIGINT)
      cli::print_note("fp8-step", who + "INT: saving after this step; once more ends the run without saving");
  };
  on.again = [=] {
    cli::print_note("fp8-step", who + "INT again: ended without saving; checkpoints that were committed are whole");
    comm::abort_all(128 + SIGINT);
  };
  return on;
}

}  // namespace

int main(int argc, char** argv) {
  const fp8::cli::Command command = fp8::settings::step_command();
  return fp8::cli::run(
      argc, argv, command,
      [&](const fp8::cli::Arguments& arguments) {
        if (arguments.flag("check-variants"))
          return check_variants(arguments, std::span(argv, static_cast<std::size_t>(argc)));
        fp8::cli::StopSignals signals(on_request(arguments.flag("quiet")));  // before threads and MPI
        const auto origin = fp8::model::origin_of("fp8-step", fp8::cli::version(), argc, argv);
        fp8::train::Start start{"fp8-step", arguments.integer("timeout"), true};
        if (arguments.has("ranks")) start.ranks = arguments.integer("ranks");
        return fp8::train::run_ranks(start, [&](fp8::comm::Communicator& host_comm) {
          return step(fp8::cli::with_common(command), arguments, origin, signals, host_comm);
        });
      },
      fp8::train::library_versions());
}
