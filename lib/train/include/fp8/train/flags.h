/// The flag tables of fp8-step and fp8-eval, and the configurations they stand for. One table is the help, the
/// completions and the names in a config file; the manuals are held against it.
#pragma once

#include "fp8/cli/arguments.h"
#include "fp8/cli/command.h"
#include "fp8/train/run.h"

namespace fp8::train {

/// fp8-step.
cli::Command step_command();
/// The run that the arguments ask for. Throws Error naming a flag.
RunConfig step_config(const cli::Arguments& arguments);

/// fp8-eval.
cli::Command eval_command();
/// The evaluation that the arguments ask for. Throws Error naming a flag.
EvalConfig eval_config(const cli::Arguments& arguments);

}  // namespace fp8::train
