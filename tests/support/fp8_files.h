/// Small files and folders for tests of any kind. Nothing here knows GoogleTest or a crate above base.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/error.h"

namespace fp8::test {

/// The bytes of a file. Throws Error when it cannot be read.
inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw Error(path + ": cannot read");
  return bytes;
}

/// Makes a file of these bytes, or replaces what it held. Throws Error when it cannot be written.
inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes;
  out.close();
  if (!out) throw Error(path + ": cannot write");
}

/// A fresh folder, removed with all in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "fp8-test-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw Error(path_ + ": cannot create");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  /// The folder.
  const std::string& path() const { return path_; }
  /// Path of `name` in the folder.
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  /// Writes a file, and the folders that its name needs; returns its path.
  std::string write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories(std::filesystem::path(at(name)).parent_path());
    write_file(at(name), bytes);
    return at(name);
  }
  /// What lies in the folder, sorted: nothing half-written may stay.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  std::string path_;
};

}  // namespace fp8::test
