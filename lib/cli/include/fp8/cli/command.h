/// The flag table of a tool: what its parsing, its help, its completions and its config file are made from.
/// Plain data; nothing here looks at a command line. Every field has an initializer, so that a row names only what it
/// needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fp8::cli {

/// What a flag takes.
enum class Kind : std::uint8_t {
  toggle,   ///< nothing: `--name`, and `--no-name` for its opposite
  text,     ///< any text
  integer,  ///< a whole number within min and max
  real,     ///< a finite number within min and max
  choice,   ///< one of `choices`
  path,     ///< a file or folder
  list,     ///< any text, again and again
};

/// One flag.
struct Flag {
  std::string name{};                  ///< without dashes; also its name in a config file
  char letter = 0;                     ///< single-letter form, 0 for none
  Kind kind = Kind::toggle;            ///< what it takes
  std::string metavar{};               ///< what its value is called in the help: N, FILE; empty for a toggle
  std::string default_text{};          ///< value when it is not given; empty for no value. Of a toggle: "on", empty, or
                                       ///< "auto": neither on nor off until somebody says so
  std::string help{};                  ///< one sentence without a full stop
  std::vector<std::string> choices{};  ///< of Kind::choice
  std::string group{};                 ///< heading in the help; empty for the first group
  std::optional<double> min{};         ///< least legal number
  std::optional<double> max{};         ///< greatest legal number
  bool in_config = true;               ///< whether a config file may set it
};

/// An argument without dashes.
struct Positional {
  std::string name{};     ///< lower case, for Arguments::positionals
  std::string metavar{};  ///< upper case, as shown in the help
  std::string help{};     ///< one sentence without a full stop
  bool required = true;   ///< whether it must be there
  bool repeated = false;  ///< whether it takes all that is left; only the last may
};

/// A tool's command line.
struct Command {
  std::string name{};                     ///< fp8-step
  std::string about{};                    ///< one line
  std::string synopsis{};                 ///< what follows the name in the usage line; made from the tables when empty
  std::string example{};                  ///< a command line, without prompt; shown first in the help
  std::vector<Flag> flags{};              ///< in the order of the help
  std::vector<Positional> positionals{};  ///< in their order
  bool takes_command = false;             ///< what follows `--` is a command to run, see Arguments::rest
};

/// `command` with the flags that every tool has: help, version, quiet, verbose, completion. Idempotent.
Command with_common(Command command);

/// -o, --output: `help` says what is written there.
Flag output_flag(const std::string& help);
/// -f, --force: replace an output that exists.
Flag force_flag();
/// -n, --dry-run: check everything, write nothing.
Flag dry_run_flag();
/// --json: JSON Lines on standard output instead of text for people.
Flag json_flag();

/// The help text, wrapped to `columns` (at least 60): example, usage, arguments, flags by group.
std::string help(const Command& command, int columns = 80);

/// A completion script for bash, for this tool alone.
std::string bash_completion(const Command& command);

}  // namespace fp8::cli
