/// Small files and folders for tests of any kind. Nothing here knows GoogleTest or a crate above base.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/base/folders.h"

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

/// A folder for one test, gone at its end.
class TemporaryFolder : public ScratchFolder {
 public:
  /// Writes a file, and the folders that its name needs; returns its path.
  std::string write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories(std::filesystem::path(at(name)).parent_path());
    write_file(at(name), bytes);
    return at(name);
  }
  /// What lies in the folder, sorted: nothing half-written may stay.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path()))
      all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }
};

}  // namespace fp8::test
