/// Functions that the checks of an output share with its commit.
#pragma once

#include <sys/stat.h>

#include <string>

namespace fp8 {

/// Throws Error `path: exists (use --force to replace it)`.
[[noreturn]] void throw_exists(const std::string& path);

/// The checks of check_output() that hold for every file that replaces another one, those that a run writes included.
void check_target(const std::string& path, bool force);

/// lstat; false if the path does not exist. Throws Error for any other failure.
bool status_of(const std::string& path, struct stat& s);

}  // namespace fp8
