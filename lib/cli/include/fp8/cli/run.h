/// The common part of every main: help, version, completions, error line, checked standard output. The only library
/// code that prints, on behalf of main.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/cli/arguments.h"
#include "fp8/cli/command.h"

namespace fp8::cli {

/// Runs a tool: parses the arguments, answers --help, --version and --completion, else calls `body` and returns its
/// status. `command` gets the common flags. `versions` lists the libraries that the tool uses: "HDF5 1.10.8". An Error
/// is printed as one line `tool: error_message()` on standard error and returned as its status; other exceptions give
/// status 2. Standard output is flushed and checked: if the reader has closed the pipe, the status is 0 without a
/// message; any other failure gives status 2. SIGPIPE and SIGXFSZ (file size limit) are ignored from here on, so that
/// the write fails instead; children inherit this unless they restore the defaults. Under mpirun, only rank 0 prints
/// errors of the command line.
int run(int argc, char** argv, const Command& command, const std::function<int(const Arguments&)>& body,
        const std::vector<std::string>& versions = {});

/// The message of an error with its hints as flags: "data.h5: exists (use --force to replace it)".
std::string error_message(const Error& error);

/// Prints `tool: message` on standard error as one line safe for a terminal.
void print_error(const std::string& tool, const std::string& message);

/// Prints each line of `text` on standard error after `tool: `, safe for a terminal. For notes and warnings.
void print_note(const std::string& tool, const std::string& text);

/// A callback for File::open_read(), called for a named pipe to which nothing has been written yet: prints a note that
/// the tool is waiting, unless `quiet`.
std::function<void(const std::string& path)> waiting_note(const std::string& tool, bool quiet);

/// The suite's version: "0.1.0".
std::string version();

/// The commit the suite was built from; empty if not built in a git working tree.
std::string commit();

/// One line: `fp8-step 0.1.0 (0123456789ab), HDF5 1.10.8, ...`.
std::string version_text(const std::string& tool, const std::vector<std::string>& versions = {});

}  // namespace fp8::cli
