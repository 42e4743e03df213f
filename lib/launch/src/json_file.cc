// Files of the supervisors, which are small and are rewritten whole.
#include "json_file.h"

#include <filesystem>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/folders.h"
#include "fp8/json/json.h"

namespace fp8::launch {

void write_json_file(const std::string& path, const json::Value& value) {
  (void)remove_leftovers(path);
  AtomicFile target(path, true);
  File out = File::open_update(target.path());
  out.write_all(json::dump(value, 2) + "\n");
  out.close();
  target.commit();
}

bool read_json_file(const std::string& path, const std::function<void(const json::Object&)>& read) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return false;
  if (status.type() != std::filesystem::file_type::regular) throw Error(path + ": not a regular file");
  try {
    const json::Value file = json::parse_file(path, {.max_depth = 8, .max_bytes = std::size_t{16} << 20U});
    if (!file.is_object()) throw Error(path + ": expected an object");
    read(file.as_object());
  } catch (const Error& e) {
    throw Error(std::string(e.what()) + "; remove this file and run the command again", e.code());
  }
  return true;
}

json::Array texts(const std::vector<std::string>& from) {
  json::Array array;
  for (const std::string& text : from) array.emplace_back(text);
  return array;
}

std::vector<std::string> strings_of(const json::Object& fields, const std::string& key, const std::string& path) {
  std::vector<std::string> strings;
  for (const json::Value& value : fields.get_array(key, path)) {
    if (!value.is_string()) throw Error(path + ": \"" + key + "\": expected strings");
    strings.push_back(value.as_string());
  }
  return strings;
}

}  // namespace fp8::launch
