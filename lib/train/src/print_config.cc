// The configuration of a run in effect, without the run.
#include <filesystem>

#include "fp8/base/error.h"
#include "fp8/model/record.h"
#include "fp8/settings/checks.h"
#include "fp8/settings/flags.h"
#include "fp8/train/run.h"
#include "run_setup.h"

namespace fp8::train {
namespace {

constexpr std::int64_t kManySteps = 1'000'000'000;  // where a configuration leaves the number open

// The checkpoint that MODEL names, or nothing unless it and the data exist.
std::string existing_model(const settings::RunConfig& config) {
  std::error_code ignored;
  if (config.model == "-" || !std::filesystem::exists(config.data, ignored)) return "";
  try {
    const std::string named = model::resolve_checkpoint_argument(config.model);
    return std::filesystem::exists(named, ignored) ? named : "";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

json::Value printed_config(settings::RunConfig config, comm::Communicator& host_comm) {
  json::Value flags;
  std::string named;
  comm::agree(host_comm, [&] {
    settings::check_settings(config);
    if (!config.out.empty()) state::check_outputs(config);
    if (!comm::is_writer(host_comm)) return;
    named = existing_model(config);
    if (named.empty()) flags = settings::printed_config(config);
  });
  named = host_comm.all_gather(named)[0];
  if (named.empty()) return flags;
  config.model = named;
  if (config.steps == 0 && config.epochs == 0) config.steps = kManySteps;
  const RunInputs inputs = open_inputs(config, host_comm);
  const state::Hooks silent;
  state::Journal journal(silent, host_comm);
  const state::RunCheckpoints checkpoints(host_comm, config, journal);
  const RunSetup setup = resolve(config, host_comm, inputs, checkpoints);
  flags = setup.config.flags;
  if (config.steps == 0) {  // from the epochs
    flags.as_object().set("steps", setup.config.steps);
    flags.as_object().set("epochs", nullptr);
  }
  return flags;
}

}  // namespace fp8::train
