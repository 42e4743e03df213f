/// Runs a short helper program such as gnuplot to its end, with input and output in memory and without a shell.
/// Training commands, whose output is forwarded as it arrives, are run by launch.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fp8 {

/// How a program ended.
struct ProgramResult {
  int status = 0;     ///< exit status, or 128 + the signal number
  std::string out{};  ///< standard output
  std::string err{};  ///< standard error
};

/// Runs `words`, the first being the program, searched in PATH, with `input` as its standard input, in its own process
/// group, with the default actions of SIGPIPE and SIGXFSZ. Returns nothing if there is no such program. With `seconds`
/// > 0 the group is killed after that time and Error is thrown. Throws Error `name: reason`, where `name` is the first
/// word, when the program cannot be run.
std::optional<ProgramResult> run_program(std::vector<std::string> words, const std::string& input, double seconds = 0);

/// Path of the program `name` in the folders of `path`, separated by colons, an empty one being the current folder;
/// empty when not found.
std::string find_program(const std::string& path, const std::string& name);

/// Throws Error `name: no such program` if there is none to run: by its path, or in the folders of PATH.
void check_program(const std::string& name);

}  // namespace fp8
