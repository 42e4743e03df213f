/// Errors as values with an exit code. A library throws Error; only a tool's main prints the message and exits. The
/// message names what the user can correct; there is no log level and no stack trace.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fp8 {

/// Exit status of every tool; fp8(7) lists them.
enum class Exit : std::uint8_t {
  done = 0,         ///< the work is done
  no = 1,           ///< ran, and the result is negative (a difference, a limit not met, nothing to resume)
  bad = 2,          ///< usage error, invalid or damaged input, system error
  fp8_missing = 3,  ///< FP8 was requested and did not run as planned
  diverged = 4,     ///< training diverged
  again = 75,       ///< stopped on request, checkpoint saved: run again
};

/// A setting that can be changed to avoid an error. Libraries do not know how a tool spells it; cli::error_message()
/// appends it to the message as a flag.
struct Hint {
  std::string setting;  ///< its name in a config file, as "vocab-size"
  std::string text;     ///< the values, the reason, or both, as "u16 or u32 for ids"; may be empty
};

/// One line that describes the error, as `path: reason`, without the tool's name and without a newline.
class Error : public std::runtime_error {
 public:
  /// `message` is shown to the user behind the tool's name; `code` is the exit status.
  explicit Error(const std::string& message, Exit code = Exit::bad, std::vector<Hint> hints = {})
      : std::runtime_error(message), code_(code), hints_(std::move(hints)) {}
  /// An error with status Exit::bad.
  Error(const std::string& message, std::vector<Hint> hints) : Error(message, Exit::bad, std::move(hints)) {}
  /// Exit status of the tool.
  Exit code() const { return code_; }
  const std::vector<Hint>& hints() const { return hints_; }

 private:
  Exit code_;
  std::vector<Hint> hints_;
};

/// The exception that is being handled, as an Error: an Error as it is, std::bad_alloc as "out of memory", any other as
/// "internal error: what". Call it in a catch block.
Error current_error();

/// Throws Error with `path: reason: strerror(errno_value)`.
[[noreturn]] void throw_errno(const std::string& path, const std::string& reason, int errno_value);

}  // namespace fp8
