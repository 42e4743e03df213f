/// Plans: the phases of a run, each up to a step and with flags of its own, and the command line of a phase. The format
/// is fp8-plan(5). What the flags mean is the business of the program that gets them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp8::launch {

/// One phase: the steps from the end of the phase before, or from the first.
struct Phase {
  std::int64_t until = 0;          ///< last step, counted as updates completed; above that of the phase before
  std::vector<std::string> flags;  ///< words for the command, quotes removed; may be empty
  std::uint64_t line = 0;          ///< where it stands in its file, from 1

  /// Equal in every field.
  bool operator==(const Phase&) const = default;
};

/// The phases of a run, at least one.
struct Plan {
  std::string name;           ///< file, for messages
  std::vector<Phase> phases;  ///< in their order

  /// The last step of the last phase.
  std::int64_t end() const { return phases.back().until; }
  /// Index of the phase in which the step after `step` falls; nothing when the plan is done by then.
  std::optional<std::size_t> phase_after(std::int64_t step) const;
};

/// Parses the text of a plan. Throws Error `name:LINE: reason`.
Plan parse_plan(std::string_view text, const std::string& name);

/// Reads a plan file of at most 1 MiB. Errors name `path`.
Plan read_plan(const std::string& path);

/// Whether the command says how many steps the whole run has: --steps or --epochs, as a flag or in the file of
/// --config. A config file that cannot be read says nothing here; the command will complain.
bool names_steps(std::span<const std::string> command);

/// Throws Error unless the plan ends at or before the --steps of the command, where it has that flag.
void check_plan(const Plan& plan, std::span<const std::string> command);

/// `command` with what a launch appends: --out `run`, and with a plan --until-step, --steps of the plan's end unless
/// the command names its steps, and the flags of phase `phase`. `plan` may be null.
std::vector<std::string> command_line(std::span<const std::string> command, const std::string& run, const Plan* plan,
                                      std::size_t phase);

/// The words as a line for a shell.
std::string shell_text(std::span<const std::string> words);

}  // namespace fp8::launch
