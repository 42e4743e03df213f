/// Names and dispositions of signals.
#pragma once

#include <string>

namespace fp8 {

/// "TERM" for SIGTERM; the number where there is no name.
std::string signal_name(int signal);

/// Whether this process ignores the signal, as after nohup or in a background job of a shell.
bool signal_ignored(int signal);

}  // namespace fp8
