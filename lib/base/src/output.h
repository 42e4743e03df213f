/// Functions that the checks of an output share with its commit.
#pragma once

#include <sys/stat.h>

#include <string>

namespace fp8 {

/// Throws Error `path: exists (use --force to replace it)`.
[[noreturn]] void throw_exists(const std::string& path);

/// lstat; false if the path does not exist. Throws Error for any other failure.
bool status_of(const std::string& path, struct stat& s);

}  // namespace fp8
