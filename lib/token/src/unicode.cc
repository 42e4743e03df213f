// UTF-8 and Unicode properties, with utf8proc. The only file that includes utf8proc.h.
#include "unicode.h"

#include <utf8proc.h>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"

namespace fp8::token {
namespace {

// Length of the character at `at`, or of its maximal valid prefix if it is invalid, at least 1.
struct Sequence {
  std::size_t length;
  bool whole;
};

Sequence sequence_at(std::string_view bytes, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(bytes[at + i])); };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const std::size_t wanted = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // Tighter bounds of the second byte exclude overlong forms, surrogates and code points above U+10FFFF.
  const unsigned least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < wanted; ++i) {
    if (at + i == bytes.size()) return {i, false};
    if (byte(i) < (i == 1 ? least : 0x80) || byte(i) > (i == 1 ? most : 0xBF)) return {i, false};
  }
  return {wanted, true};
}

}  // namespace

void append_character(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0U | code >> 6U);
    put(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    put(0xE0U | code >> 12U);
    put(0x80U | (code >> 6U & 0x3FU));
    put(0x80U | (code & 0x3FU));
  } else {
    put(0xF0U | code >> 18U);
    put(0x80U | (code >> 12U & 0x3FU));
    put(0x80U | (code >> 6U & 0x3FU));
    put(0x80U | (code & 0x3FU));
  }
}

std::string replace_invalid(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const auto [length, whole] = sequence_at(bytes, at);
    text += whole ? bytes.substr(at, length) : kReplacement;
    at += length;
  }
  return text;
}

bool is_white_space(char32_t code) {
  return (code >= 0x9 && code <= 0xD) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

bool is_mark(char32_t code) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

void append_lower_case(std::string& text, char32_t code) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the only character whose lower case is two characters
  if (code == kCapitalIWithDot) {
    text += "i\xCC\x87";
  } else {
    append_character(text, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
}

void append_normalized(std::string& out, std::string_view text, Form form, std::vector<std::int32_t>& codes) {
  unsigned options = UTF8PROC_STABLE;
  options |= form == Form::nfc || form == Form::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == Form::nfkc || form == Form::nfkd) options |= UTF8PROC_COMPAT;
  const auto flags = static_cast<utf8proc_option_t>(options);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = checked_cast<utf8proc_ssize_t>(text.size(), "text");
  const auto refuse = [](utf8proc_ssize_t error) {
    throw Error(std::string("text: cannot be normalized: ") + utf8proc_errmsg(error));
  };
  codes.resize(text.size() + 1);
  utf8proc_ssize_t count =
      utf8proc_decompose(bytes, size, codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), flags);
  if (count < 0) refuse(count);
  if (std::cmp_greater_equal(count, codes.size())) {
    codes.resize(static_cast<std::size_t>(count) + 1);
    count = utf8proc_decompose(bytes, size, codes.data(), count, flags);
    if (count < 0) refuse(count);
  }
  // Composes, and writes UTF-8 in place of the code points; needs one byte more.
  const utf8proc_ssize_t length = utf8proc_reencode(codes.data(), count, flags);
  if (length < 0) refuse(length);
  out.append(reinterpret_cast<const char*>(codes.data()), static_cast<std::size_t>(length));
}

}  // namespace fp8::token
