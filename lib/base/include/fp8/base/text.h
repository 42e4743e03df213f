/// Text at the borders: making it safe to show, reading and printing numbers, matching names.
/// Locale plays no part; every function is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fp8 {

/// `text` as it may be shown on a terminal: control characters, invalid UTF-8 and characters that reorder or hide text
/// become `\xNN` or `\u{N}`; all else, newlines excluded, stays.
std::string terminal_safe(std::string_view text);

/// Whether `text` is UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool valid_utf8(std::string_view text);

/// The whole of `text` as a finite decimal number; nothing for nan, inf, a leading '+', spaces, trailing characters,
/// hexadecimal or values beyond the range of double.
std::optional<double> parse_double(std::string_view text);

/// The whole of `text` as a decimal integer; nothing for anything else, a leading '+' and overflow included.
std::optional<std::int64_t> parse_int64(std::string_view text);

/// The whole of `text` as a decimal integer without sign; nothing for anything else, overflow included.
std::optional<std::uint64_t> parse_uint64(std::string_view text);

/// The shortest decimal that reads back to the same bits; "nan", "inf", "-inf" where it is not finite.
std::string format_double(double value);

/// `value` rounded to `digits` significant digits (1 to 17), without trailing zeros, for people: 0.03125, 1.5e-07.
std::string format_short(double value, int digits);

/// A size for people, in binary units with three significant digits: "512 B", "1.5 KiB", "139 GiB".
std::string human_bytes(std::uint64_t bytes);

/// A count for people, in powers of 1000 with three significant digits: "999", "1.5 k", "124 M".
std::string human_count(std::uint64_t count);

/// Whether the whole of `name` matches `pattern`, where `*` is any run of characters, dots and slashes included, and
/// `?` is one byte. No classes, no escapes. At most |pattern| x |name| steps.
bool glob_match(std::string_view pattern, std::string_view name);

}  // namespace fp8
