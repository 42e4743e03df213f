/// Names of files that untrusted data gives.
#pragma once

#include <string_view>

namespace fp8 {

/// Whether `name` names a file of a given folder, and no other: not empty, neither "." nor with "..", without slash,
/// backslash and null.
bool is_bare_name(std::string_view name);

}  // namespace fp8
