/// A folder that lives as long as a test.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/base/file.h"

namespace fp8 {

/// A fresh folder, removed with all in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = "/tmp/fp8-base-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw Error("mkdtemp");
    path_ = pattern;
  }
  ~TemporaryFolder() { remove_tree(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  /// Path of `name` in the folder.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  /// The folder.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Makes a file with that content.
inline void write_file(const std::string& path, std::string_view text) {
  File file = File::create_exclusive(path);
  file.write_all(text);
  file.close();
}

/// What `work` throws as Error, or "" when it throws nothing.
template <typename Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace fp8
