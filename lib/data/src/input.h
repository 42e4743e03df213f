// Inputs that are read front to back. Private to the crate.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <span>
#include <string>

#include "fp8/base/file.h"
#include "fp8/base/input.h"

namespace fp8::data {

// Name of an input for messages.
inline std::string shown(const std::string& input) { return input == "-" ? "standard input" : input; }

// A file or standard input, read front to back.
class Input {
 public:
  Input(const std::string& path, const File::Waiting& waiting) : name_(shown(path)) {
    if (path != "-") file_ = File::open_read(path, waiting);
  }
  const std::string& name() const { return name_; }
  const File& file() const { return file_; }

  // Fills `bytes` unless the input ends; returns the number read.
  std::size_t fill(std::span<std::byte> bytes) {
    std::size_t got = 0;
    while (got < bytes.size()) {
      const std::size_t n = read_some(file_.is_open() ? file_.fd() : STDIN_FILENO, name_, bytes.subspan(got));
      if (n == 0) break;
      got += n;
    }
    return got;
  }

 private:
  std::string name_;
  File file_;
};

}  // namespace fp8::data
