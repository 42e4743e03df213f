/// Bytes to valid UTF-8, as decoders of tokenizers do.
#pragma once

#include <string>
#include <string_view>

namespace fp8::token {

/// The character that stands for bytes that are not UTF-8, U+FFFD.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// `bytes` with each maximal subpart that is not UTF-8 replaced by U+FFFD. Source: Unicode 15, section 3.9.
std::string replace_invalid(std::string_view bytes);

}  // namespace fp8::token
