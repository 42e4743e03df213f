// Conversations on the command line: --template.
#pragma once

#include "fp8/cli/arguments.h"

namespace fp8::tokenize {

// Reads conversations and writes token files, or JSON Lines to standard output. Returns the exit status.
int run_chat(const cli::Arguments& arguments);

}  // namespace fp8::tokenize
