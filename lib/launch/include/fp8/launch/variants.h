/// Checks of the command lines of many runs by the fp8-step that will run them, before the first of them starts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8/base/error.h"

namespace fp8::launch {

/// Why fp8-step refuses a command.
struct Refusal {
  std::string reason{};      ///< its error message; empty if it would start
  Exit status = Exit::done;  ///< its exit status
};

/// What is checked besides flags.
enum class Depth : std::uint8_t {
  flags,           ///< nothing
  existing_files,  ///< what the model and the data say, if they exist
  files,           ///< what they say; they must exist
};

/// Starts the fp8-step in `command` once, without mpirun and what else is before it, with --check-variants, and returns
/// for each variant, words that follow the command, why it would be refused. If several words name fp8-step, such as
/// the name of a job, the first that can be parsed with what follows counts. Nothing if no word does, as in a script
/// that starts it, if there is no such program here, or if it prints anything else. Throws Error `COMMAND: reason` for
/// a command that cannot be parsed without a variant.
std::optional<std::vector<Refusal>> refusals_of(std::span<const std::string> command,
                                                std::span<const std::vector<std::string>> variants, Depth depth);

}  // namespace fp8::launch
