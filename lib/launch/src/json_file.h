/// Small JSON files in the folder of a run, and lists of strings in JSON.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::launch {

/// Replaces the file `path` atomically; it is on the disk when the call returns. Throws Error `path: reason`.
void write_json_file(const std::string& path, const json::Value& value);

/// Reads a JSON object of at most 16 MiB and calls `read` with it; returns false if there is no such file. Throws Error
/// `path: reason` for anything else, also for an Error of `read`; for a damaged file it ends with what to do.
bool read_json_file(const std::string& path, const std::function<void(const json::Object&)>& read);

/// An array of strings.
json::Array texts(const std::vector<std::string>& from);

/// The strings of a member of `fields`; throws Error that names `path` and the key when it is not an array of strings.
std::vector<std::string> strings_of(const json::Object& fields, const std::string& key, const std::string& path);

}  // namespace fp8::launch
