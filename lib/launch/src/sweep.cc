// Parses sweeps strictly, because an error in the last line would otherwise appear after hours of training.
#include "fp8/launch/sweep.h"

#include <algorithm>
#include <map>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "words.h"

namespace fp8::launch {
namespace {

constexpr std::string_view kForms = "expected `name = value, value` or `side NAME: FLAGS`";

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool is_setting_name(std::string_view name) {
  return !name.empty() && is_lower_or_digit(name.front()) &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_lower_or_digit(c) || c == '-'; });
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Values separated by a comma at the end of a word.
std::vector<std::string> values_of(const Line& line, std::string_view text) {
  const std::vector<Word> words = split_words(text, line.where);
  std::vector<std::string> values;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string value = words[i].text;
    const bool comma = words[i].open_end && value.ends_with(',');
    if (comma) value.pop_back();
    if (value.empty()) throw Error(line.where + "an empty value");
    if (i + 1 < words.size() && !comma)
      throw Error(line.where + "expected a comma after \"" + excerpt(value) +
                  "\", or quotes around a value with blanks");
    if (i + 1 == words.size() && comma) throw Error(line.where + "a comma without a value after it");
    values.push_back(std::move(value));
  }
  return values;
}

void check_values(const SweepSetting& setting, const Line& line) {
  if (setting.values.empty()) throw Error(line.where + setting.name + ": has no values");
  std::map<std::string, std::string> folders;
  for (const std::string& value : setting.values) {
    const auto [at, added] = folders.emplace(folder_text(value), value);
    if (added) continue;
    if (at->second == value)
      throw Error(line.where + setting.name + ": the value \"" + excerpt(value) + "\" is repeated");
    throw Error(line.where + setting.name + ": \"" + excerpt(at->second) + "\" and \"" + excerpt(value) +
                "\" have the same folder name");
  }
}

void add_setting(Sweep& sweep, const Line& line) {
  const std::size_t equals = line.text.find('=');
  const std::string name(trimmed(line.text.substr(0, equals)));
  if (equals == std::string_view::npos || !is_setting_name(name))
    throw Error(line.where + std::string(kForms) + ", found \"" + excerpt(trimmed(line.text)) + "\"");
  if (name == "out") throw Error(line.where + "out: each run has a folder of its own");
  for (const SweepSetting& other : sweep.settings) {
    if (other.name == name)
      throw Error(line.where + name + ": has its values on line " + std::to_string(other.line) + " already");
  }
  SweepSetting setting{name, values_of(line, line.text.substr(equals + 1)), line.number};
  check_values(setting, line);
  sweep.settings.push_back(std::move(setting));
}

// `words` are the words of the line, of which the first is "side".
void add_side(Sweep& sweep, const Line& line, std::vector<Word> words) {
  const bool named = words.size() > 1 && words[1].open_end && words[1].text.ends_with(':');
  if (!named) throw Error(line.where + std::string(kForms) + ", found \"" + excerpt(trimmed(line.text)) + "\"");
  SweepSide side{words[1].text, texts_of({words.begin() + 2, words.end()}), line.number};
  side.name.pop_back();
  if (side.name.empty() || folder_text(side.name) != side.name || side.name.starts_with('.'))
    throw Error(line.where + "side \"" + excerpt(side.name) + "\": a name has letters, digits and . _ + - only");
  const std::string where = line.where + "side " + excerpt(side.name) + ": ";
  for (const SweepSide& other : sweep.sides) {
    if (other.name == side.name) throw Error(where + "is on line " + std::to_string(other.line) + " already");
  }
  if (side.flags.empty()) throw Error(where + "has no flags");
  if (!side.flags.front().starts_with('-'))
    throw Error(where + "expected a flag, found \"" + excerpt(side.flags.front()) + "\"");
  for (const std::string& word : side.flags) {
    if (is_flag(word, "--out")) throw Error(where + "--out: each run has a folder of its own");
  }
  sweep.sides.push_back(std::move(side));
}

// A flag with values of its own must not also be a flag of a side, whose value it would replace.
void check_flags(const Sweep& sweep) {
  for (const SweepSide& side : sweep.sides) {
    for (const SweepSetting& setting : sweep.settings) {
      const auto same = [&](const std::string& word) { return is_flag(word, "--" + setting.name); };
      if (std::none_of(side.flags.begin(), side.flags.end(), same)) continue;
      throw Error(sweep.name + ":" + std::to_string(side.line) + ": side " + side.name + ": --" + setting.name +
                  " has its values on line " + std::to_string(setting.line));
    }
  }
}

}  // namespace

Sweep parse_sweep(std::string_view text, const std::string& name) {
  Sweep sweep{name, {}, {}};
  for_each_line(text, name, [&](const Line& line) {
    std::vector<Word> words = split_words(line.text, line.where);
    if (words.empty()) return;
    if (words.front().text == "side") {
      add_side(sweep, line, std::move(words));
    } else {
      add_setting(sweep, line);
    }
  });
  if (sweep.settings.empty() && sweep.sides.empty()) throw Error(name + ": has no line with values or a side");
  check_flags(sweep);
  return sweep;
}

Sweep read_sweep(const std::string& path, const File::Waiting& waiting) {
  return parse_sweep(read_text_file(path, kMaxWordsFile, waiting), path);
}

}  // namespace fp8::launch
