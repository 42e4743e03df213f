/// Queries on flags for parsing, help and completions. Private to this crate.
#pragma once

#include <string>

#include "fp8/cli/arguments.h"
#include "fp8/cli/command.h"

namespace fp8::cli {

/// The flag of that name, or nullptr.
const Flag* find_flag(const std::vector<Flag>& flags, std::string_view name);

/// Whether a toggle is on by default.
bool on_by_default(const Flag& flag);

/// Whether the help and the completions list `--no-name`: for toggles that are not off by default.
bool offers_no(const Flag& flag);

/// A whole number: "1000", "1e3", "1k", "1.5M", "2G". Nothing for other text, also for a number that is not whole.
std::optional<std::int64_t> parse_count(std::string_view text);

/// "100" and "1k" as a count and "30m" as seconds; nothing for other text, a negative number or a time of 0.
std::optional<Interval> parse_interval(std::string_view text);

/// Throws Error `label: reason` unless `value` is legal for `flag`.
void check_value(const Flag& flag, const std::string& value, const std::string& label);

}  // namespace fp8::cli
