/// Logs written in a test, read from a temporary file.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "fp8/base/error.h"
#include "fp8/log/run.h"

namespace fp8::log {

/// A run; inside a test, `Run` is GoogleTest's.
using Log = Run;

/// A folder that is removed with all in it.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "fp8-log-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error(name + ": cannot be made");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  /// Path of a name in the folder.
  std::string at(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// The run of a log's text, with every field.
inline Run run_of(const std::string& text, const std::string& name = "run.jsonl") {
  const Scratch scratch;
  return read_run(scratch.write(name, text), {.all = true, .metrics = {}});
}

/// What is wrong, behind the path; empty when nothing is.
inline std::string complaint(const std::string& text) {
  const Scratch scratch;
  const std::string path = scratch.write("x.jsonl", text);
  try {
    (void)read_run(path, {.all = true, .metrics = {}});
  } catch (const Error& e) {
    const std::string message = e.what();
    EXPECT_EQ(message.substr(0, path.size() + 2), path + ": ");
    return message.substr(path.size() + 2);
  }
  return "";
}

/// A step record of few fields.
inline std::string step(std::int64_t number, std::int64_t tokens, const std::string& loss) {
  return R"({"type":"step","step":)" + std::to_string(number) + R"(,"tokens":)" + std::to_string(tokens) +
         R"(,"loss":)" + loss + "}\n";
}

}  // namespace fp8::log
