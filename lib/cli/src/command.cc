// Flag tables: common flags and checks of values.
#include "fp8/cli/command.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "flags.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::cli {
namespace {

void check_range(const Flag& flag, double value, const std::string& text, const std::string& label) {
  if (flag.min && value < *flag.min) throw Error(label + ": " + text + " is below " + format_double(*flag.min));
  if (flag.max && value > *flag.max) throw Error(label + ": " + text + " is above " + format_double(*flag.max));
}

Flag common(Flag flag) {
  flag.group = "Common";
  flag.in_config = false;
  return flag;
}

// Levenshtein distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates, const std::string& before) {
  constexpr std::size_t kLongestName = 64;
  if (name.size() < 2 || name.size() > kLongestName) return "";
  std::string nearest;
  std::size_t best = name.size() / 3 + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t d = candidate.starts_with(name) ? 1 : distance(name, candidate);
    if (d > best || (d == best && !nearest.empty())) continue;
    best = d;
    nearest = candidate;
  }
  return nearest.empty() ? "" : " (did you mean " + before + nearest + "?)";
}

const Flag* find_flag(const std::vector<Flag>& flags, std::string_view name) {
  const auto at = std::find_if(flags.begin(), flags.end(), [&](const Flag& f) { return f.name == name; });
  return at == flags.end() ? nullptr : &*at;
}

bool on_by_default(const Flag& flag) { return flag.kind == FlagKind::toggle && flag.default_text == "on"; }

bool offers_no(const Flag& flag) {
  return on_by_default(flag) || (flag.kind == FlagKind::toggle && flag.default_text == "auto");
}

std::optional<std::int64_t> parse_count(std::string_view text) {
  if (const auto plain = parse_int64(text)) return plain;
  constexpr double kExact = 9007199254740992;  // 2^53: below it every integer is a double
  const double unit = text.ends_with('k') ? 1e3 : text.ends_with('M') ? 1e6 : text.ends_with('G') ? 1e9 : 1;
  if (unit > 1) text.remove_suffix(1);
  if (unit == 1 && text.find_first_of("eE") == std::string_view::npos) return std::nullopt;
  if (unit > 1 && text.find_first_of("eE") != std::string_view::npos) return std::nullopt;
  const auto number = parse_double(text);
  if (!number) return std::nullopt;
  const double value = *number * unit, whole = std::round(value);
  // The product of a decimal fraction and the unit may be off by a rounding: 1.001k.
  if (std::abs(value) >= kExact || std::abs(value - whole) > 1e-12 * std::abs(whole)) return std::nullopt;
  return static_cast<std::int64_t>(whole);
}

std::optional<Interval> parse_interval(std::string_view text) {
  constexpr std::int64_t kMost = 1'000'000'000'000;
  if (!text.ends_with('M')) {  // 2M would differ from 2m by its case alone
    if (const auto count = parse_count(text); count && *count >= 0 && *count <= kMost) return Interval{*count, 0};
  }
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = parse_int64(text.substr(0, digits));
  const std::string_view unit = text.substr(digits);
  if (!number || *number > kMost) return std::nullopt;
  if (unit.empty()) return Interval{*number, 0};
  const std::int64_t seconds = unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (*number * seconds == 0) return std::nullopt;
  return Interval{0, *number * seconds};
}

void check_value(const Flag& flag, const std::string& value, const std::string& label) {
  const std::string quoted = "'" + value + "'";
  if (flag.kind == FlagKind::integer) {
    const auto number = parse_count(value);
    if (!number) throw Error(label + ": " + quoted + " is not a whole number, as 1000, 1e3 or 1k");
    check_range(flag, static_cast<double>(*number), value, label);
  } else if (flag.kind == FlagKind::real) {
    const auto number = parse_double(value);
    if (!number) throw Error(label + ": " + quoted + " is not a number");
    check_range(flag, *number, value, label);
  } else if (flag.kind == FlagKind::interval) {
    if (!parse_interval(value))
      throw Error(label + ": " + quoted + " is neither a whole number nor a time, as 90s, 30m or 2h");
  } else if (flag.kind == FlagKind::choice &&
             std::find(flag.choices.begin(), flag.choices.end(), value) == flag.choices.end()) {
    std::string all;
    for (const std::string& c : flag.choices) all += (all.empty() ? "" : ", ") + c;
    throw Error(label + ": " + quoted + " is not one of " + all);
  } else if (flag.kind == FlagKind::path && value.empty()) {
    throw Error(label + ": empty path");
  }
}

Command with_common(Command command) {
  const std::vector<Flag> rows = {
      {.name = "help", .letter = 'h', .help = "print this help and exit"},
      {.name = "version", .help = "print the versions of the tool and its libraries and exit"},
      {.name = "quiet", .letter = 'q', .help = "print no progress and no notes"},
      {.name = "verbose", .letter = 'v', .help = "print time, peak memory and versions on standard error at the end"},
      {.name = "completion",
       .kind = FlagKind::choice,
       .metavar = "SHELL",
       .help = "print a completion script and exit",
       .choices = completion_shells()},
  };
  for (const Flag& row : rows) {
    if (find_flag(command.flags, row.name) == nullptr) command.flags.push_back(common(row));
  }
  return command;
}

Flag output_flag(const std::string& help) {
  return {.name = "output", .letter = 'o', .kind = FlagKind::path, .metavar = "FILE", .help = help, .in_config = false};
}

Flag force_flag() { return common({.name = "force", .letter = 'f', .help = "replace an output that exists"}); }

Flag dry_run_flag() {
  return common(
      {.name = "dry-run", .letter = 'n', .help = "check everything, print what would be done, write nothing"});
}

Flag json_flag() { return common({.name = "json", .help = "print JSON Lines instead of text"}); }

Positional checkpoint_argument(const std::string& name, const std::string& metavar, const std::string& what) {
  return {.name = name,
          .metavar = metavar,
          .help = what + ": a path, or RUN, RUN@last, RUN@best or RUN@STEP of the folder of a run; -: read a " +
                  "checkpoint record from standard input"};
}

}  // namespace fp8::cli
