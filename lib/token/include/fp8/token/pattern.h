/// Regular expressions of Python that appear in files of other programs, such as PEFT's target_modules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fp8::token {

/// For each of `texts`, which are ASCII without control characters, whether Python's re.fullmatch(pattern, text)
/// matches. Throws Error `what: reason` if the pattern is invalid, takes too many steps, or has syntax that PCRE2 may
/// treat in another way: flags, names, references, lookbehind, possessive quantifiers, `\A` and other escapes of
/// letters but `\d \w \s \b` and their capitals, a literal brace, `[` in a set, characters beyond ASCII.
std::vector<bool> full_matches(std::string_view pattern, const std::vector<std::string>& texts,
                               const std::string& what);

}  // namespace fp8::token
