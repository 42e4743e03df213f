/// Errors as values with an exit code. A library throws Error; only a tool's main prints it and exits.
/// This is not a logging facility and carries no stack: the message names what the user can mend.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace fp8 {

/// Exit status of every tool; fp8(7) lists them.
enum class Exit : std::uint8_t {
  done = 0,         ///< the work is done
  no = 1,           ///< ran, and the answer is no (a difference, a gate not met, nothing to resume)
  bad = 2,          ///< usage, bad or damaged input, an error of the system
  fp8_missing = 3,  ///< FP8 was asked for and did not run as planned
  diverged = 4,     ///< training diverged
  again = 75,       ///< stopped on request, checkpoint saved: run again
};

/// One line that says what is wrong, as `path: reason` or `--flag: reason`, without the tool's name and without a
/// newline.
class Error : public std::runtime_error {
 public:
  /// `message` is shown to the user behind the tool's name; `code` is the exit status.
  explicit Error(const std::string& message, Exit code = Exit::bad) : std::runtime_error(message), code_(code) {}
  /// Exit status this error asks for.
  Exit code() const { return code_; }

 private:
  Exit code_;
};

/// Throws Error with `path: reason: strerror(errno_value)`.
[[noreturn]] void throw_errno(const std::string& path, const std::string& reason, int errno_value);

}  // namespace fp8
