/// The files of a data set that a configuration names. Private to this crate.
#pragma once

#include <string>
#include <vector>

#include "fp8/foreign/import.h"

namespace fp8::foreign {

/// The file of a name: a path as find_named() finds it, or below --dataset-dir; for a name of a hub, as "org/set", the
/// file set.jsonl or set.json in --dataset-dir. Empty if there is none.
std::string local_file(const Import& import, const std::string& name);

/// What Import::missing says about a name that local_file() does not find: the file to fetch and where it belongs.
std::string to_fetch(const std::string& name, const std::string& split);

/// The files of a folder whose names match a glob, sorted; the folder as it is or below --dataset-dir.
std::vector<std::string> files_of_folder(const Options& options, const std::string& folder, const std::string& glob);

}  // namespace fp8::foreign
