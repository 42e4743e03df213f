// A scanner for a fixed sequence of keys. On any deviation it returns false and the strict parser reads the line; so
// the scanner must never accept a line that the parser rejects, but need not report reasons.
#include "fp8/json/flat.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace fp8::json {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool digit(char c) { return c >= '0' && c <= '9'; }

// Whether a character is unescaped in JSON text and ASCII. The result must not depend on whether char is signed, which
// it is not on aarch64.
bool plain(char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; }

// The functions below read from `p` and return the position after what they read; nullptr if the text does not match.
// The text ends in '}', at which every loop over digits and blanks stops.

const char* skip_blanks(const char* p) {
  while (*p == ' ' || *p == '\t') ++p;
  return p;
}

const char* skip_digits(const char* p) {
  if (!digit(*p)) return nullptr;
  while (digit(*p)) ++p;
  return p;
}

// Reads the fraction and exponent of a number.
const char* skip_fraction(const char* p) {
  if (*p == '.') p = skip_digits(p + 1);
  if (p == nullptr || (*p != 'e' && *p != 'E')) return p;
  ++p;
  if (*p == '+' || *p == '-') ++p;
  return skip_digits(p);
}

const char* read_number(const char* p, bool wanted, Scalar& out) {
  constexpr std::ptrdiff_t kSafeDigits = 18, kNoOverflow = 300;
  const char* begin = p;
  const bool negative = *p == '-';
  if (negative) ++p;
  if (!digit(*p)) return nullptr;
  const char* first = p;
  std::uint64_t value = 0;
  if (*p == '0') {
    ++p;
  } else {
    for (; digit(*p); ++p) value = value * 10 + static_cast<std::uint64_t>(*p - '0');
  }
  if (*p != '.' && *p != 'e' && *p != 'E') {
    if (p - first > kSafeDigits) return nullptr;
    out.type = Type::integer;
    out.integer = negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
    out.number = static_cast<double>(out.integer);
    return p;
  }
  const char* end = skip_fraction(p);
  if (end == nullptr) return nullptr;
  out.type = Type::real;
  out.number = 0;
  const std::string_view fraction(p, static_cast<std::size_t>(end - p));
  const bool finite = p - first < kNoOverflow && fraction.find_first_of("eE") == std::string_view::npos;
  if (!wanted && finite) return end;
  const auto [stop, error] = std::from_chars(begin, end, out.number);
  return error == std::errc() && stop == end ? end : nullptr;
}

const char* read_string(const char* p, const char* end, Scalar& out) {
  const char* first = ++p;
  while (p < end && plain(*p)) ++p;
  if (p == end || *p != '"') return nullptr;
  out.type = Type::string;
  out.text = {first, static_cast<std::size_t>(p - first)};
  return p + 1;
}

const char* read_word(const char* p, const char* end, std::string_view word, Scalar& out) {
  if (static_cast<std::size_t>(end - p) < word.size() || std::memcmp(p, word.data(), word.size()) != 0) return nullptr;
  out.type = word == "null" ? Type::null : Type::boolean;
  out.number = word == "true" ? 1 : 0;
  return p + word.size();
}

const char* read_scalar(const char* p, const char* end, bool wanted, Scalar& out) {
  switch (*p) {
    case '"':
      return read_string(p, end, out);
    case 't':
      return read_word(p, end, "true", out);
    case 'f':
      return read_word(p, end, "false", out);
    case 'n':
      return read_word(p, end, "null", out);
    default:
      return read_number(p, wanted, out);
  }
}

}  // namespace

std::optional<Shape> Shape::of(const Object& object, const std::function<bool(const std::string&)>& wanted) {
  if (object.empty()) return std::nullopt;
  Shape shape;
  for (const auto& [key, value] : object) {
    if (value.is_array() || value.is_object() || !std::all_of(key.begin(), key.end(), plain)) return std::nullopt;
    shape.members_.push_back({"\"" + key + "\"", wanted(key)});
  }
  return shape;
}

bool Shape::read(std::string_view line, std::span<Scalar> values) const {
  const std::size_t first = line.find_first_not_of(kBlanks), last = line.find_last_not_of(kBlanks);
  if (first == std::string_view::npos || line[first] != '{' || line[last] != '}') return false;
  const char *p = line.data() + first + 1, *end = line.data() + last;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    p = skip_blanks(p);
    if (static_cast<std::size_t>(end - p) < member.key.size()) return false;
    if (std::memcmp(p, member.key.data(), member.key.size()) != 0) return false;
    p = skip_blanks(p + member.key.size());
    if (*p != ':') return false;
    values[i] = {};
    p = read_scalar(skip_blanks(p + 1), end, member.wanted, values[i]);
    if (p == nullptr) return false;
    p = skip_blanks(p);
    if (i + 1 < members_.size() && *p++ != ',') return false;
  }
  return p == end;
}

}  // namespace fp8::json
