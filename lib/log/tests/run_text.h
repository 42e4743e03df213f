/// Helpers that read logs given as text through a temporary file.
#pragma once

#include <string>

#include "fp8/log/run.h"
#include "fp8_test.h"

namespace fp8::log {

/// Alias of Run, since `Run` inside a test is a member of GoogleTest.
using Log = Run;

/// Reads the text of a log with every field.
inline Run run_of(const std::string& text, const std::string& name = "run.jsonl") {
  const test::TemporaryFolder scratch;
  return read_run(scratch.write(name, text), {.all = true, .metrics = {}});
}

/// A vector of runs, which cannot be copied.
template <typename... Runs>
std::vector<Log> runs_of(Runs... runs) {
  std::vector<Log> all;
  (all.push_back(std::move(runs)), ...);
  return all;
}

/// The error of read_run() without the path; "no error" on success.
inline std::string complaint(const std::string& text) {
  const test::TemporaryFolder scratch;
  const std::string path = scratch.write("x.jsonl", text);
  const std::string message = test::error_of([&] { (void)read_run(path, {.all = true, .metrics = {}}); });
  if (message == "no error") return message;
  EXPECT_EQ(message.substr(0, path.size() + 2), path + ": ");
  return message.substr(path.size() + 2);
}

/// A step record with number, tokens and loss.
inline std::string step(std::int64_t number, std::int64_t tokens, const std::string& loss) {
  return R"({"type":"step","step":)" + std::to_string(number) + R"(,"tokens":)" + std::to_string(tokens) +
         R"(,"loss":)" + loss + "}\n";
}

}  // namespace fp8::log
