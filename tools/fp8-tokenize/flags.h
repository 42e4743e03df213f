// The flag table of fp8-tokenize.
#pragma once

#include "fp8/cli/command.h"

namespace fp8::tokenize {

// The tool's command line.
cli::Command command();

}  // namespace fp8::tokenize
