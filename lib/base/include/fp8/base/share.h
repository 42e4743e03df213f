/// The suite's data files, which are installed with it: presets, templates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fp8 {

/// The folder of the suite's data files of a kind, such as "presets": in $FP8_SHARE, else in ../share/fp8 relative to
/// the running program's folder, else in share of the source tree that the program was built in. Throws Error that
/// names the variable if there is no such folder; a folder from the variable is not checked.
std::string share_folder(const std::string& kind);

/// Names of the files in share_folder(kind) that end in `extension`, without it, sorted. Throws Error if the folder
/// cannot be listed.
std::vector<std::string> share_names(const std::string& kind, std::string_view extension);

/// The path of a JSON file: `name_or_path` if it has a slash, ends in .json or is a file, else the file of that name in
/// share_folder(kind). Throws Error that lists the names there for an unknown one, and calls them `what`: "preset".
std::string share_file(const std::string& kind, const std::string& what, const std::string& name_or_path);

}  // namespace fp8
