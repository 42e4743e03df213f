/// Files and folders for tests. Depends only on the crate base, not on GoogleTest.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/base/folders.h"

namespace fp8::test {

/// Returns the bytes of a file. Throws Error if the file cannot be read.
inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  if (in && in.peek() != std::ifstream::traits_type::eof()) bytes << in.rdbuf();  // a loop over bytes is slow with -O0
  if (in.fail() || bytes.fail()) throw Error(path + ": cannot read");
  return bytes.str();
}

/// Creates or replaces a file with these bytes. Throws Error if the file cannot be written.
inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes;
  out.close();
  if (!out) throw Error(path + ": cannot write");
}

/// A folder for one test, which the destructor removes.
class TemporaryFolder : public ScratchFolder {
 public:
  /// Writes a file and creates its parent folders; returns its path.
  std::string write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories(std::filesystem::path(at(name)).parent_path());
    write_file(at(name), bytes);
    return at(name);
  }
  /// Sorted names of the folder's entries, to check that no temporary file is left.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path()))
      all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }
};

}  // namespace fp8::test
