/// Logs written in a test, read from a temporary file.
#pragma once

#include <string>

#include "fp8/log/run.h"
#include "fp8_test.h"

namespace fp8::log {

/// A run; inside a test, `Run` is GoogleTest's.
using Log = Run;

/// The run of a log's text, with every field.
inline Run run_of(const std::string& text, const std::string& name = "run.jsonl") {
  const test::TemporaryFolder scratch;
  return read_run(scratch.write(name, text), {.all = true, .metrics = {}});
}

/// Several runs; they are moved, not copied.
template <typename... Runs>
std::vector<Log> runs_of(Runs... runs) {
  std::vector<Log> all;
  (all.push_back(std::move(runs)), ...);
  return all;
}

/// What is wrong, behind the path; "no error" when nothing is.
inline std::string complaint(const std::string& text) {
  const test::TemporaryFolder scratch;
  const std::string path = scratch.write("x.jsonl", text);
  const std::string message = test::error_of([&] { (void)read_run(path, {.all = true, .metrics = {}}); });
  if (message == "no error") return message;
  EXPECT_EQ(message.substr(0, path.size() + 2), path + ": ");
  return message.substr(path.size() + 2);
}

/// A step record of few fields.
inline std::string step(std::int64_t number, std::int64_t tokens, const std::string& loss) {
  return R"({"type":"step","step":)" + std::to_string(number) + R"(,"tokens":)" + std::to_string(tokens) +
         R"(,"loss":)" + loss + "}\n";
}

}  // namespace fp8::log
