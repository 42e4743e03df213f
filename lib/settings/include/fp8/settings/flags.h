/// The commands of fp8-step, fp8-eval, fp8-inspect and fp8-plan, and the configurations that their arguments give.
/// Their flags are in the table of settings (setting.h).
#pragma once

#include <string>
#include <string_view>

#include "fp8/cli/arguments.h"
#include "fp8/cli/command.h"
#include "fp8/settings/config.h"

namespace fp8::settings {

/// fp8-step.
cli::Command step_command();
/// The run that the arguments describe. Throws Error naming a flag.
RunConfig step_config(const cli::Arguments& arguments);

/// The flags of a run, as RunConfig::flags, with what its model and data imply, where the model or the data may be
/// missing. If the run has adapters and MODEL can be opened and holds FP8 codes, precision, recipe, rowwise-single-copy
/// and fp8-format are those that the codes imply, so that the output can be read back. If the data can be opened, is
/// packed, and no length is given, seq-length is that of its sequences. Throws Error naming a flag that contradicts
/// others, the codes or the data. After check_settings(); see train::printed_config() for a run whose files exist.
json::Value printed_config(const RunConfig& config);

/// `arguments` with the values of the file that --config names, which flags override. Throws Error naming the file.
cli::Arguments with_config(const cli::Command& command, cli::Arguments arguments);

/// fp8-eval.
cli::Command eval_command();
/// The evaluation that the arguments describe. Throws Error naming a flag.
EvalConfig eval_config(const cli::Arguments& arguments);

/// fp8-inspect.
cli::Command inspect_command();
/// The inspection that the arguments describe. Throws Error naming a flag.
InspectConfig inspect_config(const cli::Arguments& arguments);

/// fp8-plan.
cli::Command plan_command();
/// The plan that the arguments describe: of the recipes of --recipe, which imply FP8, or without it of --precision, or
/// without that of tensorwise. Throws Error naming a flag.
PlanConfig plan_config(const cli::Arguments& arguments);
/// The flags of fp8-step with which a run computes and stores as `config` says, where they are not at their defaults:
/// " --precision fp8 --tp 2", with a space before each.
std::string step_flags(const RunConfig& config);

}  // namespace fp8::settings
