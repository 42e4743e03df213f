// Parses phases strictly, because an error in the last phase would otherwise appear days later.
#include "fp8/launch/phases.h"

#include <algorithm>
#include <array>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "words.h"

namespace fp8::launch {
namespace {

constexpr std::array<std::string_view, 4> kNotInPhases = {"--out", "--until-step", "--steps", "--epochs"};

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

std::optional<std::size_t> Phases::phase_after(std::int64_t step) const {
  const auto at = std::find_if(list.begin(), list.end(), [&](const Phase& p) { return p.until > step; });
  if (at == list.end()) return std::nullopt;
  return static_cast<std::size_t>(at - list.begin());
}

Phases parse_phases(std::string_view text, const std::string& name) {
  Phases phases{name, {}};
  for_each_line(text, name, [&](const Line& line) {
    std::vector<std::string> words = texts_of(split_words(line.text, line.where));
    if (words.empty()) return;
    phases.list.push_back(phase_of(std::move(words), phases.list.empty() ? 0 : phases.end(), line.where));
    phases.list.back().line = line.number;
  });
  if (phases.list.empty()) throw Error(name + ": has no phase");
  return phases;
}

Phases read_phases(const std::string& path, const File::Waiting& waiting) {
  return parse_phases(read_text_file(path, kMaxWordsFile, waiting), path);
}

bool names_steps(std::span<const std::string> command) {
  const bool flag = std::any_of(command.begin(), command.end(), [](const std::string& word) {
    return is_flag(word, "--steps") || is_flag(word, "--epochs");
  });
  if (flag) return true;
  const auto config = value_of(command, "--config");
  return config && config_names_steps(*config);
}

void check_phases(const Phases& phases, std::span<const std::string> command) {
  const auto text = value_of(command, "--steps");
  const auto steps = text ? parse_int64(*text) : std::nullopt;
  if (steps && *steps < phases.end())
    throw Error(phases.name + ":" + std::to_string(phases.list.back().line) + ": step " + std::to_string(phases.end()) +
                " is after the end of the run, --steps " + *text);
}

std::vector<std::string> command_line(std::span<const std::string> command, const std::string& run,
                                      const Phases* phases, std::size_t phase) {
  std::vector<std::string> words(command.begin(), command.end());
  words.insert(words.end(), {"--out", run});
  if (phases == nullptr) return words;
  const Phase& now = phases->list.at(phase);
  words.insert(words.end(), {"--until-step", std::to_string(now.until)});
  if (!names_steps(command)) words.insert(words.end(), {"--steps", std::to_string(phases->end())});
  words.insert(words.end(), now.flags.begin(), now.flags.end());
  return words;
}

std::string shell_text(std::span<const std::string> words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (is_plain_word(word)) {
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
