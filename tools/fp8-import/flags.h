// The command line of fp8-import.
#pragma once

#include "fp8/cli/arguments.h"
#include "fp8/cli/command.h"
#include "fp8/foreign/import.h"

namespace fp8::import_tool {

cli::Command command();

// The import that the arguments describe.
foreign::Options options_of(const cli::Arguments& arguments);

}  // namespace fp8::import_tool
