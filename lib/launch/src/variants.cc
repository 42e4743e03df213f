// fp8-step checks its own flags: this crate links neither its table of settings nor what computes.
#include "fp8/launch/variants.h"

#include <algorithm>

#include "fp8/base/program.h"
#include "fp8/json/json.h"
#include "json_file.h"

namespace fp8::launch {
namespace {

Verdict verdict_of(const std::string& line) {
  const json::Value record = json::parse(line, "fp8-step");
  const json::Object& fields = record.as_object();
  return {fields.get_string_or("error", "", "fp8-step"), static_cast<Exit>(fields.get_int("status", "fp8-step")),
          fields.get_string_or("gradients", "", "fp8-step")};
}

// The last line of standard error, without the name of the tool.
std::string message_of(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  text.erase(0, text.rfind('\n') + 1);
  constexpr std::string_view kTool = "fp8-step: ";
  return text.starts_with(kTool) ? text.substr(kTool.size()) : text;
}

// The verdicts of one fp8-step, or why it refuses the command without a variant.
struct Answer {
  std::vector<Verdict> verdicts{};
  std::optional<Error> error{};
};

// The answer of the fp8-step with which `words` begin; nothing if there is none, or if it is another program.
std::optional<Answer> answer_of(std::vector<std::string> words, std::span<const std::vector<std::string>> variants,
                                Depth depth) {
  if (depth != Depth::flags) words.emplace_back(depth == Depth::files ? "--dry-run" : "--print-config");
  words.emplace_back("--check-variants");
  std::string lines;
  for (const std::vector<std::string>& variant : variants) lines += json::dump(texts(variant)) + "\n";
  const std::optional<ProgramResult> result = run_program(words, lines);
  if (!result) return std::nullopt;
  if (result->status != 0)  // 127: a library is missing, or memory for it
    return Answer{
        {},
        Error("COMMAND: " + message_of(result->err),
              result->status <= static_cast<int>(Exit::again) ? static_cast<Exit>(result->status) : Exit::bad)};
  Answer answer;
  try {
    for (std::size_t from = 0, end = 0; (end = result->out.find('\n', from)) != std::string::npos; from = end + 1)
      answer.verdicts.push_back(verdict_of(result->out.substr(from, end - from)));
  } catch (const Error&) {
    return std::nullopt;  // a wrapper that prints something else
  }
  if (answer.verdicts.size() != variants.size()) return std::nullopt;
  return answer;
}

}  // namespace

std::optional<std::vector<Verdict>> verdicts_of(std::span<const std::string> command,
                                                std::span<const std::vector<std::string>> variants, Depth depth) {
  std::optional<Error> error;
  for (auto word = command.begin(); word != command.end(); ++word) {
    if (*word != "fp8-step" && !word->ends_with("/fp8-step")) continue;
    if (word != command.begin() && word + 1 == command.end()) break;  // a name, as $0 of a script
    std::optional<Answer> answer = answer_of({word, command.end()}, variants, depth);
    if (answer && !answer->error) return std::move(answer->verdicts);
    if (answer && !error) error = std::move(answer->error);
  }
  if (error) throw Error(*error);
  return std::nullopt;
}

}  // namespace fp8::launch
