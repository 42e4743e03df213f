/// Folders that last, and what the writers of files leave in them. Files themselves are in file.h. Every function
/// throws Error `path: reason` on failure.
#pragma once

#include <string>

namespace fp8 {

/// Makes a folder and those above it that are missing, and syncs the folders that hold the new names. One that is there
/// already is no error.
void make_folders(const std::string& path);

/// Removes what killed writers of `target` (see AtomicFile) left beside it. Only where no other can be at work on it.
void remove_leftovers(const std::string& target);

}  // namespace fp8
