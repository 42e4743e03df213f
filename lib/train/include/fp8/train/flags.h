/// The flag tables of fp8-step, fp8-eval and fp8-inspect, and the configurations that flags are read into. Help,
/// completions and the names in a config file come from these tables; tests compare the manual pages with them.
#pragma once

#include <string>
#include <string_view>

#include "fp8/cli/arguments.h"
#include "fp8/cli/command.h"
#include "fp8/train/evaluate.h"
#include "fp8/train/inspect.h"

namespace fp8::train {

/// The flag of a setting, for messages: "--lr" for "lr". Settings have the names of their flags.
std::string flag_name(std::string_view setting);

/// fp8-step.
cli::Command step_command();
/// The run that the arguments describe. Throws Error naming a flag.
RunConfig step_config(const cli::Arguments& arguments);

/// The resolved flags of fp8-step as --print-config writes them. If the run has adapters and the checkpoint `model` can
/// be opened and holds FP8 codes, precision, recipe, rowwise-single-copy and fp8-format are those that the codes imply,
/// so that the output can be read back. Throws Error naming a flag that contradicts the codes or, if the checkpoint can
/// be opened, the precision.
json::Value printed_config(json::Value flags, const cli::Arguments& arguments, const std::string& model);

/// fp8-eval.
cli::Command eval_command();
/// The evaluation that the arguments describe. Throws Error naming a flag.
EvalConfig eval_config(const cli::Arguments& arguments);

/// fp8-inspect.
cli::Command inspect_command();
/// The inspection that the arguments describe. Throws Error naming a flag.
InspectConfig inspect_config(const cli::Arguments& arguments);

}  // namespace fp8::train
