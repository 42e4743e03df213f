/// fp8-log --follow: a view of a run that changes with it.
#pragma once

#include <string>

namespace fp8::report {

/// Shows the run until it has ended: in place on a terminal, else a line every `interval` seconds on standard output.
/// Throws Error as log::Follower does.
void follow(const std::string& path, double interval);

}  // namespace fp8::report
