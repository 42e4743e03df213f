/// Text for display, parsing and printing of numbers, matching of names. Independent of the locale; every function is
/// pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fp8 {

/// `text` safe for a terminal: control characters, invalid UTF-8 and characters that reorder or hide text become `\xNN`
/// or `\u{N}`; everything else, newlines excluded, is unchanged.
std::string terminal_safe(std::string_view text);

/// `text` for a message: if longer than `most` bytes, its beginning, cut between characters, and "...". For names and
/// values from files, whose length is not bounded.
std::string excerpt(std::string_view text, std::size_t most = 80);

/// Whether `text` is UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool valid_utf8(std::string_view text);

/// Whether a shell reads `text` as one word without quotes.
bool is_plain_word(std::string_view text);

/// `text`, the beginning of a file, without the byte order mark of UTF-8 that some programs write first.
std::string_view without_byte_order_mark(std::string_view text);

/// Length in bytes of the longest prefix of `text` that is valid UTF-8.
std::size_t valid_utf8_length(std::string_view text);

/// Parses the whole of `text` as a finite decimal number; returns nothing for nan, inf, a leading '+', spaces, trailing
/// characters, hexadecimal or values beyond the range of double.
std::optional<double> parse_double(std::string_view text);

/// Parses the whole of `text` as a decimal integer; returns nothing otherwise, also for a leading '+' and on overflow.
std::optional<std::int64_t> parse_int64(std::string_view text);

/// Parses the whole of `text` as an unsigned decimal integer; returns nothing otherwise, also on overflow.
std::optional<std::uint64_t> parse_uint64(std::string_view text);

/// The shortest decimal that reads back to the same bits; "nan", "inf", "-inf" where it is not finite.
std::string format_double(double value);

/// `value` rounded to `digits` significant digits (1 to 17), without trailing zeros, for display: 0.03125, 1.5e-07.
std::string format_short(double value, int digits);

/// A size for display, in binary units with three significant digits: "512 B", "1.5 KiB", "139 GiB".
std::string human_bytes(std::uint64_t bytes);

/// A count for display, in powers of 1000 with three significant digits: "999", "1.5 k", "124 M".
std::string human_count(std::uint64_t count);

/// A count and a noun whose plural has an s: "1 layer", "3 layers".
std::string counted(std::int64_t count, std::string_view noun);

/// A duration for display: "4.5 s", "45 s", "6 min 10 s", "3 h 12 min", "2 d 4 h".
std::string human_seconds(double seconds);

/// Whether the whole of `name` matches `pattern`, where `*` matches any run of characters, dots and slashes included,
/// and `?` matches one byte. No character classes, no escapes. At most |pattern| x |name| steps.
bool glob_match(std::string_view pattern, std::string_view name);

}  // namespace fp8
