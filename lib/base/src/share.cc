// Finding share/ at run time.
#include "fp8/base/share.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "fp8/base/error.h"

namespace fp8 {

namespace fs = std::filesystem;

std::string share_folder(const std::string& kind) {
  if (const char* folder = std::getenv("FP8_SHARE"); folder != nullptr && *folder != '\0') {
    return (fs::path(folder) / kind).string();
  }
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* relative : {"../share/fp8", "../../share"}) {
    const fs::path folder = (program / relative).lexically_normal();
    if (fs::is_directory(folder / kind, error)) return (folder / kind).string();
  }
  throw Error((program / "../share/fp8").lexically_normal().string() + ": no " + kind +
              " there; set FP8_SHARE to the folder that holds them");
}

std::vector<std::string> share_names(const std::string& kind, std::string_view extension) {
  const std::string folder = share_folder(kind);
  std::error_code error;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == extension) names.push_back(entry.path().stem().string());
  }
  if (error) throw Error(folder + ": cannot be listed: " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

std::string share_file(const std::string& kind, const std::string& what, const std::string& name_or_path) {
  std::error_code error;
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json") ||
      fs::is_regular_file(name_or_path, error))
    return name_or_path;
  std::string all;
  for (const std::string& name : share_names(kind, ".json")) {
    if (name == name_or_path) return (fs::path(share_folder(kind)) / (name + ".json")).string();
    all += (all.empty() ? "" : ", ") + name;
  }
  throw Error(name_or_path + ": neither a file nor a " + what + " (" + all + ")");
}

}  // namespace fp8
