/// What every main shares: help, version, completions, one line for an error, a checked standard output.
/// The only library code that prints, on behalf of main.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fp8/cli/arguments.h"
#include "fp8/cli/command.h"

namespace fp8::cli {

/// Runs a tool: parses, answers --help, --version and --completion, else calls `body` and returns its status.
/// `command` gets the common flags. `versions` names the libraries that the tool uses: "HDF5 1.10.8".
/// Error becomes one line `tool: message` on standard error and its status; other exceptions status 2. Standard output
/// is flushed and checked: a reader that went away ends the tool quietly with 0, any other failure is status 2. SIGPIPE
/// and SIGXFSZ (a file grown to its limit) are ignored from here on, so that the write fails; also by children unless
/// they restore them. Under mpirun, rank 0 alone speaks where it
/// concerns the command line.
int run(int argc, char** argv, const Command& command, const std::function<int(const Arguments&)>& body,
        const std::vector<std::string>& versions = {});

/// Prints `tool: message` on standard error as one line safe for a terminal.
void print_error(const std::string& tool, const std::string& message);

/// Prints each line of `text` on standard error behind `tool: `, safe for a terminal: what a tool says that is no
/// error.
void print_note(const std::string& tool, const std::string& text);

/// The suite's version: "0.1.0".
std::string version();

/// The commit it was built from; empty when not built in a git working tree.
std::string commit();

/// One line: `fp8-step 0.1.0 (0123456789ab), HDF5 1.10.8, ...`.
std::string version_text(const std::string& tool, const std::vector<std::string>& versions = {});

}  // namespace fp8::cli
