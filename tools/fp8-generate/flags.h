// The flag table of fp8-generate, and what the flags say.
#pragma once

#include <optional>
#include <string>

#include "fp8/cli/arguments.h"
#include "fp8/convert/open.h"
#include "fp8/generate/generator.h"

namespace fp8::generate {

// The command line.
cli::Command command();

// How tokens are drawn.
Sampling sampling_of(const cli::Arguments& arguments);

// How the model computes. The codes of a quantized checkpoint imply a recipe. Throws Error if --recipe names another,
// or is given without --precision fp8.
Precision precision_of(const cli::Arguments& arguments, const convert::OpenModel& model);

}  // namespace fp8::generate
