/// Checks of the command lines of many runs by the fp8-step that will run them, before the first of them starts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8/base/error.h"

namespace fp8::launch {

/// What fp8-step says of a command.
struct Verdict {
  std::string reason{};      ///< its error message; empty if it would start
  Exit status = Exit::done;  ///< its exit status
  std::string gradients{};   ///< the file of --gradients, from a flag or --config; empty without, and at Depth::flags
};

/// What is checked besides flags.
enum class Depth : std::uint8_t {
  flags,           ///< nothing
  existing_files,  ///< what the model and the data say, if they exist
  files,           ///< what they say; they must exist
};

/// Starts the fp8-step in `command` once, without mpirun and what else is before it, with --check-variants, and returns
/// for each variant, words that follow the command, whether it would start. If several words name fp8-step, such as
/// the name of a job, the first that can be parsed with what follows counts. Nothing if no word does, as in a script
/// that starts it, if there is no such program here, or if it prints anything else. Throws Error `COMMAND: reason` for
/// a command that cannot be parsed without a variant.
std::optional<std::vector<Verdict>> verdicts_of(std::span<const std::string> command,
                                                std::span<const std::vector<std::string>> variants, Depth depth);

}  // namespace fp8::launch
