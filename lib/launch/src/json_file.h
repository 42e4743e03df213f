/// Small JSON files in the folder of a run, and lists of strings in JSON.
#pragma once

#include <string>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::launch {

/// Replaces the file `path` atomically; it is on the disk when the call returns. Throws Error `path: reason`.
void write_json_file(const std::string& path, const json::Value& value);

/// Reads a JSON object of at most 16 MiB; null if there is no such file. Throws Error `path: reason` for anything else.
json::Value read_json_file(const std::string& path);

/// An array of strings.
json::Array texts(const std::vector<std::string>& from);

/// The strings of a member of `fields`; throws Error that names `path` and the key when it is not an array of strings.
std::vector<std::string> strings_of(const json::Object& fields, const std::string& key, const std::string& path);

}  // namespace fp8::launch
