/// Translates regular expressions from the syntax of Oniguruma (Ruby) to that of PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace fp8::token {

/// `pattern` for PCRE2 with UTF, UCP and MULTILINE, with the same matches. Character classes that differ between the
/// two libraries (\s, \w, \d, scripts) are written out. Throws Error `what: reason` for unsupported syntax: nested
/// sets, && in sets, named references, \h, \R, \X, \G, {n}+, flags after the beginning, (?i) with two characters that
/// fold to one.
std::string translate(std::string_view pattern, const std::string& what);

}  // namespace fp8::token
