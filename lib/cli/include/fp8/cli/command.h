/// The flag table of a tool: source of its parser, help, completions and config file. Plain data, no parsing here.
/// Every field has an initializer, so that a row sets only the fields it needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fp8::cli {

/// Type of a flag's value.
enum class FlagKind : std::uint8_t {
  toggle,    ///< no value: `--name`, and `--no-name` for its opposite
  text,      ///< any text
  integer,   ///< a whole number within min and max; also as 1e3, 10k, 2M or 1.5G
  interval,  ///< a whole number from 0, as an integer, or a time: 90s, 30m, 2h
  real,      ///< a finite number within min and max
  choice,    ///< one of `choices`
  path,      ///< a file or folder
  list,      ///< any text, may be repeated
};

/// One flag.
struct Flag {
  std::string name{};                      ///< without dashes; also its name in a config file
  char letter = 0;                         ///< single-letter form, 0 for none
  FlagKind kind = FlagKind::toggle;        ///< type of the value
  std::string metavar{};                   ///< placeholder of the value in the help: N, FILE; empty for a toggle
  std::string default_text{};              ///< value if not given; empty for no value. A toggle has "on", empty, or
                                           ///< "auto", which is neither on nor off
  std::string help{};                      ///< one sentence without a full stop
  std::vector<std::string> choices{};      ///< values of FlagKind::choice
  std::vector<std::string> suggestions{};  ///< likely values of other kinds, for completions
  std::string group{};                     ///< heading in the help; empty for the first group
  std::optional<double> min{};             ///< least legal number
  std::optional<double> max{};             ///< greatest legal number
  bool in_config = true;                   ///< whether a config file may set it
};

/// A positional argument.
struct Positional {
  std::string name{};                      ///< lower case, for Arguments::positionals
  std::string metavar{};                   ///< upper case, as shown in the help
  std::string help{};                      ///< one sentence without a full stop
  bool required = true;                    ///< whether it must be given
  bool repeated = false;                   ///< whether it takes all remaining words; only for the last one
  std::vector<std::string> suggestions{};  ///< likely values besides files, for completions
};

/// A tool's command line.
struct Command {
  std::string name{};                     ///< fp8-step
  std::string about{};                    ///< one line
  std::string synopsis{};                 ///< usage line after the name; generated from the tables if empty
  std::string example{};                  ///< a command line, without prompt; shown first in the help
  std::vector<Flag> flags{};              ///< flags in the order of the help
  std::vector<Positional> positionals{};  ///< positional arguments in their order
  bool takes_command = false;             ///< the words after `--` are a command to run, see Arguments::rest
  bool launched = false;                  ///< mpirun starts it: completions also work after mpirun and its flags
  bool writes = false;                    ///< writes --output all the time: a signal that ends it removes what is there
};

/// A flag as messages name it: "--lr" for "lr".
inline std::string flag_name(std::string_view name) { return "--" + std::string(name); }

/// " (did you mean X?)" with the name among `candidates` that is nearest to a misspelt one, after `before`; empty if
/// none is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates,
                         const std::string& before = "");

/// `command` with the flags that every tool has: help, version, quiet, verbose, completion. Idempotent.
Command with_common(Command command);

/// -o, --output: `help` describes the output.
Flag output_flag(const std::string& help);
/// -f, --force: replace an output that exists.
Flag force_flag();
/// -n, --dry-run: check everything, write nothing.
Flag dry_run_flag();
/// --json: print JSON Lines instead of text.
Flag json_flag();
/// The argument that names a checkpoint, in each tool the same (fp8-checkpoint(5), "Checkpoint arguments"); `what`
/// begins its help: "checkpoint to convert".
Positional checkpoint_argument(const std::string& name, const std::string& metavar, const std::string& what);

/// The help text, wrapped to `columns` (at least 60): example, usage, arguments, flags by group.
std::string help(const Command& command, int columns = 80);

/// Shells for which there are completions: bash, zsh, fish.
std::vector<std::string> completion_shells();

/// A completion script of the tool for one of completion_shells(): flags, choices, suggestions and files. A launched
/// command is completed after mpirun and its flags too. The scripts of bash and fish can be sourced; the script of zsh
/// can be sourced after compinit, or be a file of $fpath.
std::string completion(const Command& command, std::string_view shell);

}  // namespace fp8::cli
