/// What parsing, help and completions ask of a flag. Private to this crate.
#pragma once

#include <string>

#include "fp8/cli/command.h"

namespace fp8::cli {

/// The flag of that name, or nullptr.
const Flag* find_flag(const std::vector<Flag>& flags, std::string_view name);

/// Whether a toggle is on when nobody says otherwise.
bool on_by_default(const Flag& flag);

/// Whether the help and the completions offer `--no-name`: where a toggle is not off by default.
bool offers_no(const Flag& flag);

/// Throws Error `label: reason` unless `value` is legal for `flag`.
void check_value(const Flag& flag, const std::string& value, const std::string& label);

}  // namespace fp8::cli
