/// The phases of a run, each with a last step and additional flags, and the command line of a phase. The file format is
/// fp8-phases(5). The flags of a phase are not checked here but by the command.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/file.h"

namespace fp8::launch {

/// One phase of a run; it begins where the previous phase ends.
struct Phase {
  std::int64_t until = 0;          ///< last step, in completed updates; above that of the previous phase
  std::vector<std::string> flags;  ///< words for the command, quotes removed; may be empty
  std::uint64_t line = 0;          ///< line number in the file, from 1

  /// Compares all fields.
  bool operator==(const Phase&) const = default;
};

/// The phases of a run, at least one.
struct Phases {
  std::string name;         ///< file name in messages
  std::vector<Phase> list;  ///< in order

  /// The last step of the last phase.
  std::int64_t end() const { return list.back().until; }
  /// Index of the phase that contains the step after `step`; nullopt when `step` is at or after end().
  std::optional<std::size_t> phase_after(std::int64_t step) const;
};

/// Parses the text of a phases file. Throws Error `name:LINE: reason`.
Phases parse_phases(std::string_view text, const std::string& name);

/// Reads a phases file of at most 1 MiB. Errors name `path`.
Phases read_phases(const std::string& path, const File::Waiting& waiting = {});

/// Whether the command sets the length of the run: --steps or --epochs, as a flag or in the file of --config. False for
/// a config file that cannot be read; the command reports that error.
bool names_steps(std::span<const std::string> command);

/// Throws Error when the command has --steps and the last phase ends after that step.
void check_phases(const Phases& phases, std::span<const std::string> command);

/// `command` followed by --out `run` and, with phases, by --until-step, by --steps with the end of the last phase
/// unless names_steps(command), and by the flags of phase `phase`. `phases` may be null.
std::vector<std::string> command_line(std::span<const std::string> command, const std::string& run,
                                      const Phases* phases, std::size_t phase);

/// The words as a shell command, quoted where necessary.
std::string shell_text(std::span<const std::string> words);

}  // namespace fp8::launch
