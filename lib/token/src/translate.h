/// Expressions of Oniguruma (Ruby's syntax) as PCRE2 wants them: the same matches, or a refusal.
#pragma once

#include <string>
#include <string_view>

namespace fp8::token {

/// `pattern` for PCRE2 with UTF, UCP and MULTILINE. Characters classes are spelled out where the two libraries differ
/// (\s, \w, \d, scripts). Throws Error `what: reason` for syntax that is not supported: sets inside sets, && in sets,
/// named references, \h, \R, \X, \G, {n}+, flags in the middle, (?i) where it folds two characters into one.
std::string translate(std::string_view pattern, const std::string& what);

}  // namespace fp8::token
