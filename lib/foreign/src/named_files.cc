#include "named_files.h"

#include <filesystem>

namespace fp8::foreign {

namespace fs = std::filesystem;

std::string find_named(const Import& import, const std::string& name) {
  std::error_code ignored;
  if (name.empty()) return {};
  if (fs::exists(name, ignored)) return name;
  if (fs::path(name).is_absolute()) return {};
  fs::path folder = fs::absolute(import.documents.front().path).parent_path();
  for (;;) {
    if (fs::exists(folder / name, ignored)) return (folder / name).string();
    if (folder == folder.parent_path()) return {};
    folder = folder.parent_path();
  }
}

const Document* named_document(Import& import, const std::string& name, const std::string& what) {
  const fs::path last = fs::path(name).filename();
  for (std::size_t i = 1; i < import.documents.size(); ++i)
    if (fs::path(import.documents[i].path).filename() == last) return &import.documents[i];
  const std::string path = find_named(import, name);
  if (path.empty()) {
    import.missing.push_back(what + ": " + name + ": no such file; name it after the first file");
    return nullptr;
  }
  import.documents.push_back(read_document(path));
  return &import.documents.back();
}

}  // namespace fp8::foreign
