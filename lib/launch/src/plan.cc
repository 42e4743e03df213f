// Parses plans strictly, because an error in the last phase would otherwise appear days later.
#include "fp8/launch/plan.h"

#include <algorithm>
#include <array>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::launch {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 20U;
constexpr std::array<std::string_view, 4> kNotInPhases = {"--out", "--until-step", "--steps", "--epochs"};

bool is_blank(char c) { return c == ' ' || c == '\t'; }

// The words of one line. Errors begin with `where`.
class Splitter {
 public:
  Splitter(std::string_view line, const std::string& where) : line_(line), where_(where) {}

  std::vector<std::string> words() {
    std::vector<std::string> words;
    while (true) {
      while (at_ < line_.size() && is_blank(line_[at_])) ++at_;
      if (at_ == line_.size() || line_[at_] == '#') return words;
      words.push_back(word());
    }
  }

 private:
  std::string word() {
    std::string text;
    while (at_ < line_.size() && !is_blank(line_[at_])) {
      const char c = line_[at_++];
      if (c == '\\') throw Error(where_ + "backslash: not an escape character in a plan; put the word in quotes");
      if (c == '\'' || c == '"') {
        const std::size_t end = line_.find(c, at_);
        if (end == std::string_view::npos) throw Error(where_ + "unterminated quote");
        text += line_.substr(at_, end - at_);
        at_ = end + 1;
      } else {
        text += c;
      }
    }
    return text;
  }

  std::string_view line_;
  const std::string& where_;
  std::size_t at_ = 0;
};

// Whether `word` is `name` or `name`=VALUE.
bool is_flag(std::string_view word, std::string_view name) {
  return word == name || (word.starts_with(name) && word[name.size()] == '=');
}

void check_text(std::string_view line, const std::string& where) {
  if (!valid_utf8(line)) throw Error(where + "not UTF-8");
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\r') throw Error(where + "a carriage return; lines end in a newline alone");
    if ((byte < 0x20 && c != '\t') || byte == 0x7f) throw Error(where + "a control character");
  }
}

Phase phase_of(std::vector<std::string> words, std::int64_t before, const std::string& where) {
  Phase phase;
  const auto until = parse_int64(words.front());
  if (!until || *until < 1)
    throw Error(where + "expected the step at which the phase ends, found \"" + excerpt(words.front()) + "\"");
  if (*until <= before)
    throw Error(where + "step " + std::to_string(*until) + " is not above " + std::to_string(before) +
                ", the end of the previous phase");
  phase.until = *until;
  words.erase(words.begin());
  phase.flags = std::move(words);
  if (!phase.flags.empty() && !phase.flags.front().starts_with('-'))
    throw Error(where + "expected a flag after the step, found \"" + excerpt(phase.flags.front()) + "\"");
  for (const std::string& word : phase.flags) {
    for (const std::string_view name : kNotInPhases) {
      if (is_flag(word, name)) throw Error(where + std::string(name) + " is not allowed in a phase");
    }
  }
  return phase;
}

// Value of the last flag `name` of a command; nullopt without one.
std::optional<std::string> value_of(std::span<const std::string> command, const std::string& name) {
  std::optional<std::string> value;
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (command[i] == name && i + 1 < command.size()) value = command[i + 1];
    if (command[i].starts_with(name + "=")) value = command[i].substr(name.size() + 1);
  }
  return value;
}

bool config_names_steps(const std::string& path) {
  try {
    const json::Value config = json::parse_file(path);
    if (!config.is_object()) return false;
    const auto has = [&](std::string_view key) {
      const json::Value* value = config.as_object().find(key);
      return value != nullptr && !value->is_null();
    };
    return has("steps") || has("epochs");
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::optional<std::size_t> PhasePlan::phase_after(std::int64_t step) const {
  const auto at = std::find_if(phases.begin(), phases.end(), [&](const Phase& p) { return p.until > step; });
  if (at == phases.end()) return std::nullopt;
  return static_cast<std::size_t>(at - phases.begin());
}

PhasePlan parse_plan(std::string_view text, const std::string& name) {
  PhasePlan plan{name, {}};
  std::uint64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    const std::string where = name + ":" + std::to_string(++number) + ": ";
    check_text(line, where);
    std::vector<std::string> words = Splitter(line, where).words();
    if (words.empty()) continue;
    plan.phases.push_back(phase_of(std::move(words), plan.phases.empty() ? 0 : plan.end(), where));
    plan.phases.back().line = number;
  }
  if (plan.phases.empty()) throw Error(name + ": has no phase");
  return plan;
}

PhasePlan read_plan(const std::string& path, const File::Waiting& waiting) {
  return parse_plan(read_text_file(path, kMaxBytes, waiting), path);
}

bool names_steps(std::span<const std::string> command) {
  const bool flag = std::any_of(command.begin(), command.end(), [](const std::string& word) {
    return is_flag(word, "--steps") || is_flag(word, "--epochs");
  });
  if (flag) return true;
  const auto config = value_of(command, "--config");
  return config && config_names_steps(*config);
}

void check_plan(const PhasePlan& plan, std::span<const std::string> command) {
  const auto text = value_of(command, "--steps");
  const auto steps = text ? parse_int64(*text) : std::nullopt;
  if (steps && *steps < plan.end())
    throw Error(plan.name + ":" + std::to_string(plan.phases.back().line) + ": step " + std::to_string(plan.end()) +
                " is after the end of the run, --steps " + *text);
}

std::vector<std::string> command_line(std::span<const std::string> command, const std::string& run,
                                      const PhasePlan* plan, std::size_t phase) {
  std::vector<std::string> words(command.begin(), command.end());
  words.insert(words.end(), {"--out", run});
  if (plan == nullptr) return words;
  const Phase& now = plan->phases.at(phase);
  words.insert(words.end(), {"--until-step", std::to_string(now.until)});
  if (!names_steps(command)) words.insert(words.end(), {"--steps", std::to_string(plan->end())});
  words.insert(words.end(), now.flags.begin(), now.flags.end());
  return words;
}

std::string shell_text(std::span<const std::string> words) {
  constexpr std::string_view kPlain = "%+,-./:=@_";
  std::string line;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [&](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             kPlain.find(c) != kPlain.npos;
    });
    if (!line.empty()) line += ' ';
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace fp8::launch
