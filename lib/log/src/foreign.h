// Files that are no logs.
#pragma once

#include <string>
#include <string_view>

namespace fp8::log {

// Throws Error `name: is ..., not the log of a run; ...` if a file that begins with `head` is of another known kind,
// such as a checkpoint.
void refuse_foreign(const std::string& name, std::string_view head);

}  // namespace fp8::log
