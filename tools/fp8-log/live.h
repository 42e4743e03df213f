/// fp8-log --follow: live view of a run.
#pragma once

#include <string>

namespace fp8::report {

/// Shows the run until it ends: redrawn in place on a terminal, else one line every `interval` seconds on stdout.
/// Throws Error as log::Follower does.
void follow(const std::string& path, double interval);

}  // namespace fp8::report
