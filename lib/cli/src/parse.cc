// The command line: Speller normalizes the words, cxxopts separates flags from positionals. cxxopts cannot parse the
// words alone: it takes the next flag as the value of a flag whose value was forgotten (--out --dry-run), accepts a
// value of a toggle (--quiet=true), attaches only letters and digits to a letter (it refuses -omodel.h5), and its
// errors name neither the placeholder of a value nor the nearest flag. The only file that includes cxxopts; its regular
// expressions are disabled, since their recursion overflows the stack on long values.
#define CXXOPTS_NO_REGEX true
#include <algorithm>
#include <cxxopts.hpp>
#include <iterator>

#include "flags.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/arguments.h"

namespace fp8::cli {
namespace {

[[noreturn]] void throw_unknown(const Command& command, const std::string& word) {
  std::vector<std::string> names;
  for (const Flag& f : command.flags) {
    names.push_back(f.name);
    if (f.kind == FlagKind::toggle) names.push_back("no-" + f.name);
  }
  const std::string name = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  throw Error(word + ": unknown flag" + did_you_mean(name, names, "--"));
}

// Normalizes words to `--name`, `--no-name`, `--name=value` and positionals.
class Speller {
 public:
  Speller(const Command& command, std::span<const std::string> words) : command_(command), words_(words) {}

  // The words up to the end or to `--`.
  std::vector<std::string> flags_and_positionals() {
    while (at_ < words_.size() && words_[at_] != "--") {
      const std::string& word = words_[at_++];
      if (word.starts_with("--")) {
        long_flag(word);
      } else if (word.size() > 1 && word[0] == '-') {
        letters(word);
      } else {
        out_.push_back(word);
      }
    }
    return std::move(out_);
  }

  // The words after `--`; call after flags_and_positionals().
  std::vector<std::string> rest() const {
    if (at_ == words_.size()) return {};
    const auto rest = words_.subspan(at_ + 1);
    return {rest.begin(), rest.end()};
  }

 private:
  void long_flag(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    const Flag* flag = find_flag(command_.flags, name);
    const Flag* opposite = name.starts_with("no-") ? find_flag(command_.flags, name.substr(3)) : nullptr;
    if (flag == nullptr && (opposite == nullptr || opposite->kind != FlagKind::toggle)) {
      throw_unknown(command_, "--" + name);
    }
    if (flag == nullptr || flag->kind == FlagKind::toggle) {
      if (equals != std::string::npos) throw Error("--" + name + ": takes no value");
      out_.push_back(word);
    } else if (equals != std::string::npos) {
      out_.push_back(word);
    } else {
      out_.push_back(word + "=" + next_value(*flag, word));
    }
  }

  void letters(const std::string& word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      const auto flag = std::find_if(command_.flags.begin(), command_.flags.end(),
                                     [&](const Flag& f) { return f.letter == word[i]; });
      if (flag == command_.flags.end()) throw_unknown(command_, i == 1 ? word : std::string("-") + word[i]);
      out_.push_back("--" + flag->name);
      if (flag->kind == FlagKind::toggle) continue;
      const std::string attached = word.substr(i + 1);
      out_.back() += "=" + (attached.empty() ? next_value(*flag, std::string("-") + word[i]) : attached);
      break;
    }
  }

  // The word after a flag. A word that looks like a flag is rejected, since the value was probably forgotten; a text
  // with a blank in it is no flag.
  std::string next_value(const Flag& flag, const std::string& spelled) {
    if (at_ == words_.size()) throw Error(spelled + ": needs a value (" + flag.metavar + ")");
    const std::string& word = words_[at_];
    const bool numeric = flag.kind == FlagKind::integer || flag.kind == FlagKind::real;
    const bool words = flag.kind == FlagKind::text && word.find(' ') != std::string::npos;
    if (word.size() > 1 && word[0] == '-' && !words && !(numeric && parse_double(word))) {
      throw Error(spelled + ": needs a value; if it is '" + word + "', write --" + flag.name + "=" + word);
    }
    ++at_;
    return word;
  }

  const Command& command_;
  std::span<const std::string> words_;
  std::size_t at_ = 0;
  std::vector<std::string> out_;
};

cxxopts::ParseResult sorted(const Command& command, const std::vector<std::string>& words) {
  cxxopts::Options options(command.name);
  for (const Flag& f : command.flags) {
    if (f.kind == FlagKind::toggle) {
      options.add_options()(f.name, "", cxxopts::value<bool>())("no-" + f.name, "", cxxopts::value<bool>());
    } else {
      options.add_options()(f.name, "", cxxopts::value<std::string>());
    }
  }
  std::vector<const char*> argv = {command.name.c_str()};
  std::transform(words.begin(), words.end(), std::back_inserter(argv), [](const std::string& w) { return w.c_str(); });
  return options.parse(static_cast<int>(argv.size()), argv.data());
}

// Assigns the words that are not flags to the positionals.
std::map<std::string, std::vector<std::string>, std::less<>> dealt(const Command& command,
                                                                   const std::vector<std::string>& words,
                                                                   bool may_miss) {
  std::map<std::string, std::vector<std::string>, std::less<>> out;
  std::size_t at = 0;
  for (const Positional& p : command.positionals) {
    if (at == words.size() && p.required && !may_miss) throw Error(p.metavar + ": needed (see --help)");
    while (at < words.size() && (p.repeated || out[p.name].empty())) out[p.name].push_back(words[at++]);
  }
  if (at < words.size()) throw Error("'" + words[at] + "': unexpected argument");
  return out;
}

}  // namespace

Arguments parse(const Command& command, std::span<const std::string> words) {
  Speller speller(command, words);
  const std::vector<std::string> spelled = speller.flags_and_positionals();
  const cxxopts::ParseResult result = sorted(command, spelled);
  Arguments arguments(command);
  for (const cxxopts::KeyValue& given : result.arguments()) {
    const Flag* flag = find_flag(command.flags, given.key());
    const bool off = flag == nullptr;
    if (off) flag = find_flag(command.flags, given.key().substr(3));
    auto& values = arguments.given_[flag->name].values;
    if (flag->kind != FlagKind::toggle) check_value(*flag, given.value(), "--" + flag->name);
    if (flag->kind != FlagKind::list) values.clear();
    values.push_back(flag->kind == FlagKind::integer  ? std::to_string(*parse_count(given.value()))
                     : flag->kind != FlagKind::toggle ? given.value()
                     : off                            ? "off"
                                                      : "on");
  }
  std::vector<std::string> positionals = result.unmatched();
  std::vector<std::string> rest = speller.rest();
  if (command.takes_command) {
    arguments.rest_ = std::move(rest);
  } else {
    positionals.insert(positionals.end(), rest.begin(), rest.end());
  }
  const bool informs = std::any_of(arguments.given_.begin(), arguments.given_.end(), [](const auto& g) {
    return g.first == "help" || g.first == "version" || g.first == "completion";
  });
  arguments.positionals_ = dealt(command, positionals, informs);
  return arguments;
}

}  // namespace fp8::cli
