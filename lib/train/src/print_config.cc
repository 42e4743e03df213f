// The configuration of a run in effect, without the run.
#include <filesystem>
#include <numeric>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/ckpt/run_folder.h"
#include "fp8/json/json.h"
#include "fp8/model/record.h"
#include "fp8/settings/checks.h"
#include "fp8/settings/flags.h"
#include "fp8/train/command_check.h"
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

// The fewest ranks that the mesh of a run may have.
std::int64_t fewest_ranks(const settings::RunConfig& c) {
  const std::int64_t shards = c.dp_shard > 0 ? c.dp_shard : c.ep / std::gcd(c.ep, c.tp);
  return checked_mul(checked_mul(c.dp_replicate, shards, "mesh"), checked_mul(c.tp, c.pp, "mesh"), "mesh");
}

json::Value printed_config(settings::RunConfig config, comm::Communicator& host_comm,
                           std::optional<std::int64_t> ranks) {
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
  const RunSetup setup = resolve(config, host_comm, inputs, checkpoints, ranks);
  flags = setup.config.flags;
  if (config.steps == 0) {  // from the epochs
    flags.as_object().set("steps", setup.config.steps);
    flags.as_object().set("epochs", nullptr);
  }
  return flags;
}

}  // namespace

json::Value printed_config(settings::RunConfig config, comm::Communicator& host_comm) {
  return printed_config(std::move(config), host_comm, std::nullopt);
}

void CommandCheck::check_flags(std::span<const std::string> words) {
  const cli::Command command = cli::with_common(settings::step_command());
  settings::check_settings(settings::step_config(settings::with_config(command, cli::parse(command, words))));
}

std::string CommandCheck::check(std::span<const std::string> words, bool needs_files) {
  const cli::Command command = cli::with_common(settings::step_command());
  const cli::Arguments arguments = settings::with_config(command, cli::parse(command, words));
  settings::RunConfig config = settings::step_config(arguments);
  config.flags = cli::resolved(command, arguments);
  const bool resumes = !ckpt::list_steps(config.out).empty();
  const std::string model = arguments.positional("model");
  json::Value key = config.flags;
  for (const char* own : {"seed", "out"}) key.as_object().set(own, resumes ? json::Value(config.out) : json::Value());
  const std::string configuration = model + json::dump(key);
  if (checked_.contains(configuration)) return config.gradients;
  const std::string gradients = config.gradients;
  config.model = named(model, needs_files);
  if (needs_files && !config.data.empty()) (void)File::open_read(config.data);
  if (resumes) {
    settings::check_settings(config);
    (void)settings::printed_config(config);
  } else {
    (void)printed_config(config, *comm::solo(), fewest_ranks(config));
  }
  checked_.insert(configuration);
  return gradients;
}

// The checkpoint that MODEL names, or MODEL itself if it cannot be opened now.
std::string CommandCheck::named(const std::string& model, bool needs_file) {
  if (model == "-") return model;
  const auto known = models_.find(model);
  if (known != models_.end()) return known->second;
  try {
    return models_.emplace(model, model::resolve_checkpoint_argument(model)).first->second;
  } catch (const Error&) {
    if (needs_file) throw;
    return model;
  }
}

}  // namespace fp8::train
