/// Plans: the phases of a run, each with a last step and additional flags, and the command line of a phase. The format
/// is fp8-plan(5). The flags of a phase are not checked here but by the command.
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
struct PhasePlan {
  std::string name;           ///< file name in messages
  std::vector<Phase> phases;  ///< in order

  /// The last step of the last phase.
  std::int64_t end() const { return phases.back().until; }
  /// Index of the phase that contains the step after `step`; nullopt when `step` is at or after end().
  std::optional<std::size_t> phase_after(std::int64_t step) const;
};

/// Parses the text of a plan. Throws Error `name:LINE: reason`.
PhasePlan parse_plan(std::string_view text, const std::string& name);

/// Reads a plan file of at most 1 MiB. Errors name `path`.
PhasePlan read_plan(const std::string& path, const File::Waiting& waiting = {});

/// Whether the command sets the length of the run: --steps or --epochs, as a flag or in the file of --config. False for
/// a config file that cannot be read; the command reports that error.
bool names_steps(std::span<const std::string> command);

/// Throws Error when the command has --steps and the plan ends after that step.
void check_plan(const PhasePlan& plan, std::span<const std::string> command);

/// `command` followed by --out `run` and, with a plan, by --until-step, by --steps with the end of the plan unless
/// names_steps(command), and by the flags of phase `phase`. `plan` may be null.
std::vector<std::string> command_line(std::span<const std::string> command, const std::string& run,
                                      const PhasePlan* plan, std::size_t phase);

/// The words as a shell command, quoted where necessary.
std::string shell_text(std::span<const std::string> words);

}  // namespace fp8::launch
