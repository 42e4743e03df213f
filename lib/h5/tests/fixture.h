/// A folder of its own for each test, and ways to look at a file byte by byte.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "fp8/base/error.h"

namespace fp8::h5 {

/// Removes its folder at the end.
class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    std::string name = (std::filesystem::temp_directory_path() / "fp8-h5-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Error(name + ": cannot create");
    folder_ = name;
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// The message of the Error that `f` throws; "no error" when it throws none.
inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace fp8::h5

/// `text` holds `part`.
#define EXPECT_HOLDS(text, part) \
  EXPECT_PRED2([](const std::string& a, const std::string& b) { return a.find(b) != std::string::npos; }, text, part)
