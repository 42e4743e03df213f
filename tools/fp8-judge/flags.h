// The flag table of fp8-judge, and what the flags say.
#pragma once

#include "fp8/cli/arguments.h"
#include "fp8/judge/judge.h"

namespace fp8::judge {

// The command line.
cli::Command command();

// What the flags ask for. Throws Error naming a flag.
JudgeConfig config_of(const cli::Arguments& arguments);

}  // namespace fp8::judge
