#include "data_files.h"

#include <algorithm>
#include <filesystem>

#include "fp8/base/text.h"
#include "named_files.h"

namespace fp8::foreign {

namespace fs = std::filesystem;

std::string local_file(const Import& import, const std::string& name) {
  std::error_code ignored;
  if (name.empty()) return {};
  if (const std::string found = find_named(import, name); fs::is_regular_file(found, ignored)) return found;
  if (!import.options.dataset_dir) return {};
  const fs::path folder = *import.options.dataset_dir;
  const std::string last = fs::path(name).filename().string();
  for (const fs::path& candidate :
       {folder / name, folder / last, folder / (last + ".jsonl"), folder / (last + ".json")})
    if (fs::is_regular_file(candidate, ignored)) return candidate.string();
  return {};
}

std::string to_fetch(const std::string& name, const std::string& split) {
  const std::string last = fs::path(name).filename().string();
  const bool is_file = fs::path(last).extension() == ".jsonl" || fs::path(last).extension() == ".json";
  const std::string part = split.empty() ? "" : ", split " + split;
  if (is_file) return "data: " + name + part + ": no such file, here or in --dataset-dir";
  return "data: " + name + part + ": fetch it as " + last + ".jsonl into the folder of --dataset-dir";
}

std::vector<std::string> files_of_folder(const Options& options, const std::string& folder, const std::string& glob) {
  std::error_code ignored;
  fs::path at = folder;
  if (!fs::is_directory(at, ignored) && options.dataset_dir) at = fs::path(*options.dataset_dir) / folder;
  std::vector<std::string> files;
  for (fs::directory_iterator entry(at, ignored), end; !ignored && entry != end; entry.increment(ignored))
    if (entry->is_regular_file(ignored) && glob_match(glob, entry->path().filename().string()))
      files.push_back(entry->path().string());
  std::ranges::sort(files);
  return files;
}

}  // namespace fp8::foreign
