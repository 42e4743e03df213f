/// A command line (and a config file) parsed by its flag table. Any mistake of the user is an Error with Exit::bad that
/// contains the flag's name.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/cli/command.h"
#include "fp8/json/value.h"

namespace fp8::cli {

/// The value of an interval: a number of steps, for example, or a time.
struct Interval {
  std::int64_t count = 0;    ///< a number from 0; 0 if the value is a time
  std::int64_t seconds = 0;  ///< above 0 where it is a time, else 0
};

/// Values of all flags and positional arguments. A name that is not in the table, or a getter of the wrong kind, is an
/// error in the program (std::logic_error).
class Arguments {
 public:
  /// No arguments: every flag has its default.
  explicit Arguments(const Command& command);

  /// Whether the flag was given on the command line, or by a config file with a value other than its default.
  bool has(std::string_view name) const;
  /// Whether the flag was given on the command line.
  bool typed(std::string_view name) const;
  /// Whether the flag was given on the command line, or by a config file with any value but null.
  bool set(std::string_view name) const;
  /// Whether the flag has a value: given, or by default.
  bool has_value(std::string_view name) const;
  /// A toggle.
  bool flag(std::string_view name) const;
  /// The value of a text, choice, path or interval as given. Throws Error `--name: needed` when it has none.
  std::string text(std::string_view name) const;
  /// The value of an integer. Throws Error `--name: needed` when it has none.
  std::int64_t integer(std::string_view name) const;
  /// The value of a real (or an integer). Throws Error `--name: needed` when it has none.
  double real(std::string_view name) const;
  /// The value of an interval. Throws Error `--name: needed` when it has none.
  Interval interval(std::string_view name) const;
  /// All values of a list, in order; its default text, if any, when not given.
  std::vector<std::string> list(std::string_view name) const;
  /// The positional argument's values, in order; empty when not given.
  std::vector<std::string> positionals(std::string_view name) const;
  /// The positional argument's one value; throws Error `METAVAR: needed` when it has none.
  std::string positional(std::string_view name) const;
  /// The words after `--` (commands with takes_command).
  const std::vector<std::string>& rest() const { return rest_; }

 private:
  friend Arguments parse(const Command& command, std::span<const std::string> words);
  friend void parse_config(const Command& command, const json::Value& config, Arguments& base, const std::string& name);
  struct Given {
    std::vector<std::string> values;  // all for a list, else one; "on" or "off" for a toggle
    bool by_user = true;              // false: from a config file
  };
  const Flag& find(std::string_view name) const;
  const std::string* value_of(const Flag& flag) const;
  std::string needed(std::string_view name, std::initializer_list<FlagKind> kinds) const;

  std::vector<Flag> flags_;
  std::vector<Positional> positional_table_;
  std::map<std::string, Given, std::less<>> given_;
  std::map<std::string, std::vector<std::string>, std::less<>> positionals_;
  std::vector<std::string> rest_;
};

/// Parses `words` (argv without the tool's name). Forms: `--name value`, `--name=value`, `-n value`, `-nvalue`, bundled
/// toggles `-qv`, `--no-name`, `--`. The last of a repeated flag wins. A value may begin with '-' only as `--name=-x`,
/// as `-` alone, when it is a number and the flag takes one, or when it contains a blank and the flag takes text.
/// Missing required positionals are errors unless help, version or completion was requested.
Arguments parse(const Command& command, std::span<const std::string> words);

/// Adds the values of a config file, an object of flag names and values, to `base`; flags already given win, null is
/// skipped. Numbers for integers and reals, booleans for toggles, arrays of strings for lists, but a string
/// for the only value of a list with a default, strings for all others.
/// Errors begin with `name`, the file.
void parse_config(const Command& command, const json::Value& config, Arguments& base,
                  const std::string& name = "config");

/// The values of all flags that a config file may set, by name in the order of the table, null where there is none.
/// parse_config() reads the result back to equal values.
json::Value resolved(const Command& command, const Arguments& arguments);

}  // namespace fp8::cli
