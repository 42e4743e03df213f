// Flags by kind; `group` is the heading of --help under which a flag stands. Private to the crate.
#pragma once

#include <string>
#include <vector>

#include "fp8/cli/command.h"

namespace fp8::train {

// A text without a default.
cli::Flag text(std::string name, std::string metavar, std::string help, std::string group);
// A path without a default.
cli::Flag path(std::string name, std::string metavar, std::string help, std::string group);
// A whole number from `min` on.
cli::Flag whole(std::string name, std::string fallback, double min, std::string help, std::string group);
// A number from `min` to `max`.
cli::Flag real(std::string name, std::string fallback, double min, double max, std::string help, std::string group);
// A switch.
cli::Flag toggle(std::string name, std::string fallback, std::string help, std::string group);
// One of several names.
cli::Flag choice(std::string name, std::string fallback, std::vector<std::string> choices, std::string help,
                 std::string group);

}  // namespace fp8::train
