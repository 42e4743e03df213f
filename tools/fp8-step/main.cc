// fp8-step: trains. Optimizer steps, sharded over the ranks that mpirun starts. See fp8-step(1).
#include "fp8/train/main.h"

#include "fp8/base/error.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/cli/signals.h"
#include "fp8/json/json.h"
#include "fp8/model/record.h"
#include "fp8/train/flags.h"

namespace {

using namespace fp8;

// Flags over the config file over the defaults.
cli::Arguments with_config(const cli::Command& command, cli::Arguments arguments) {
  if (arguments.has("config")) {
    const std::string path = arguments.text("config");
    cli::parse_config(command, json::parse_file(path, {.max_depth = 16, .max_bytes = std::size_t{1} << 24U}), arguments,
                      path);
  }
  return arguments;
}

int step(const cli::Command& command, const cli::Arguments& given, const model::Origin& origin,
         const cli::StopSignals& signals, comm::Communicator& world) {
  train::Config config;
  json::Value flags;
  const bool print = given.flag("print-config");
  comm::agree(world, [&] { flags = cli::resolved(command, with_config(command, given)); });
  json::Value all_flags = flags;
  all_flags.as_object().set("print-config", print);
  all_flags.as_object().set("dry-run", given.flag("dry-run"));
  train::check_same_flags(world, all_flags, given.positional("model"));
  cli::Output out;
  if (print) {
    if (world.rank() == 0) out.line(json::dump(flags, 2));
    return static_cast<int>(Exit::done);
  }
  comm::agree(world, [&] {
    config = train::step_config(with_config(command, given));
    config.model = given.positional("model");
  });
  config.flags = flags;
  train::watch_ranks(world, "fp8-step", flags.as_object().get_int("timeout", "--timeout"));
  std::string named = config.model;
  comm::agree(world, [&] {
    if (world.rank() == 0) named = model::resolve_checkpoint_argument(config.model);
  });
  config.model = world.all_gather(named)[0];
  config.tool_version = origin.version;
  config.command = origin.command;
  const bool quiet = given.flag("quiet");
  cli::Progress progress(quiet || world.rank() != 0);
  train::Hooks hooks;
  hooks.record = [&](const json::Value& record) { out.json(record); };
  hooks.progress = [&](const std::string& text) { progress.update(text); };
  hooks.warning = [&](const std::string& text) {
    progress.done();
    cli::print_note("fp8-step", text);
  };
  hooks.note = [&](const std::string& text) {
    progress.done();
    if (!quiet) cli::print_note("fp8-step", text);
  };
  hooks.stop_requested = [&] { return signals.requested(); };
  return static_cast<int>(train::run(config, world, hooks));
}

}  // namespace

int main(int argc, char** argv) {
  const fp8::cli::Command command = fp8::train::step_command();
  return fp8::cli::run(
      argc, argv, command,
      [&](const fp8::cli::Arguments& arguments) {
        const fp8::cli::StopSignals signals;  // MPI takes its time to start and to end: a request then is one too
        const auto origin = fp8::model::origin_of("fp8-step", fp8::cli::version(), argc, argv);
        return fp8::train::run_ranks("fp8-step", [&](fp8::comm::Communicator& world) {
          return step(fp8::cli::with_common(command), arguments, origin, signals, world);
        });
      },
      fp8::train::library_versions());
}
