// Numbers are parsed and printed by std::from_chars and std::to_chars, which ignore the locale.
#include "fp8/base/text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <span>
#include <system_error>

#include "fp8/base/characters.h"

namespace fp8 {
namespace {

// Length in bytes of the UTF-8 character at `text[at]` and its code point; length 0 when it is not UTF-8.
struct Decoded {
  std::size_t length;
  std::uint32_t code;
};

Decoded decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i])); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {1, first};
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() - at < length) return {0, 0};
  std::uint32_t code = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return {0, 0};
    code = code << 6U | (byte(i) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast.at(length) || code > 0x10FFFF || surrogate) return {0, 0};
  return {length, code};
}

// Characters that move the cursor, reorder or hide text: controls, bidirectional overrides and isolates, zero-width and
// line separators, the byte order mark, tags, interlinear annotation.
bool unsafe(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0xAD || c == 0x61C || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) ||
         (c >= 0xE0000 && c <= 0xE007F);
}

std::string hex(std::uint32_t value, int width) {
  std::array<char, 8> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16);
  const std::string s(digits.data(), end);
  return s.size() < static_cast<std::size_t>(width) ? std::string(static_cast<std::size_t>(width) - s.size(), '0') + s
                                                    : s;
}

template <typename T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// `value` in the largest unit that keeps it at least 1, with three significant digits.
std::string human(std::uint64_t value, double base, std::string_view first, std::span<const std::string_view> units) {
  if (static_cast<double>(value) < base) return std::to_string(value) + std::string(first);
  double scaled = static_cast<double>(value);
  std::size_t unit = 0;
  // With three digits 999.5 rounds to 1000, which is printed as 1 of the next unit.
  const double limit = base == 1000 ? 999.5 : 1023.5;
  for (scaled /= base; scaled >= limit && unit + 1 < units.size(); ++unit) scaled /= base;
  const std::string digits = scaled >= 999.5 ? std::to_string(std::lround(scaled)) : format_short(scaled, 3);
  return digits + " " + std::string(units[unit]);
}

}  // namespace

std::string terminal_safe(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto [length, code] = decode(text, at);
    if (length == 0 || (length == 1 && unsafe(code))) {
      out += "\\x" + hex(static_cast<unsigned char>(text[at]), 2);
      ++at;
      continue;
    }
    if (unsafe(code)) {
      out += "\\u{" + hex(code, 4) + "}";
    } else {
      out += text.substr(at, length);
    }
    at += length;
  }
  return out;
}

std::string excerpt(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  while (end > 0 && !begins_character(text[end])) --end;
  return std::string(text.substr(0, end)) + "...";
}

bool is_plain_word(std::string_view text) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+=@%,:";
  return !text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

bool valid_utf8(std::string_view text) { return valid_utf8_length(text) == text.size(); }

std::size_t valid_utf8_length(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = decode(text, at).length;
    if (length == 0) break;
    at += length;
  }
  return at;
}

std::optional<double> parse_double(std::string_view text) {
  const std::optional<double> value = parse_whole<double>(text);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> parse_int64(std::string_view text) { return parse_whole<std::int64_t>(text); }

std::optional<std::uint64_t> parse_uint64(std::string_view text) { return parse_whole<std::uint64_t>(text); }

std::string format_double(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 32> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end};
}

std::string format_short(double value, int digits) {
  if (std::isnan(value)) return "nan";
  std::array<char, 64> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, digits);
  return {text.data(), end};
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  return human(bytes, 1024, " B", kUnits);
}

std::string human_count(std::uint64_t count) {
  constexpr std::array<std::string_view, 6> kUnits = {"k", "M", "G", "T", "P", "E"};
  return human(count, 1000, "", kUnits);
}

std::string counted(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string human_seconds(double seconds) {
  constexpr double kMost = 1e9;
  if (seconds < 10) return format_short(seconds, 2) + " s";
  const auto s = static_cast<std::int64_t>(std::min(seconds, kMost));
  const auto pair = [](std::int64_t a, const char* of_a, std::int64_t b, const char* of_b) {
    return std::to_string(a) + of_a + (b > 0 ? " " + std::to_string(b) + of_b : "");
  };
  if (s < 60) return std::to_string(s) + " s";
  if (s < 3600) return pair(s / 60, " min", s % 60, " s");
  if (s < 86400) return pair(s / 3600, " h", s % 3600 / 60, " min");
  return pair(s / 86400, " d", s % 86400 / 3600, " h");
}

bool glob_match(std::string_view pattern, std::string_view name) {
  // Greedy: on a mismatch only the latest star has to match one more byte.
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace fp8
