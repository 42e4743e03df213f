// Values by name, from the command line, a config file or the default.
#include "fp8/cli/arguments.h"

#include <algorithm>
#include <stdexcept>

#include "flags.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::cli {
namespace {

// A config file's value as words of a command line; `label` is for errors.
std::vector<std::string> words_of(const Flag& flag, const json::Value& value) {
  switch (flag.kind) {
    case FlagKind::toggle:
      return {value.as_bool() ? "on" : "off"};
    case FlagKind::integer:
      return {std::to_string(value.as_int())};
    case FlagKind::real:
      return {value.is_int() ? std::to_string(value.as_int()) : format_double(value.as_double())};
    case FlagKind::list: {
      if (value.is_string()) return {value.as_string()};
      std::vector<std::string> words;
      for (const json::Value& v : value.as_array()) words.push_back(v.as_string());
      return words;
    }
    case FlagKind::interval:
      if (value.is_int()) return {std::to_string(value.as_int())};
      break;
    case FlagKind::text:
    case FlagKind::choice:
    case FlagKind::path:
      break;
  }
  return {value.as_string()};
}

json::Value value_for_config(const Flag& flag, const Arguments& arguments) {
  switch (flag.kind) {
    case FlagKind::toggle:
      if (flag.default_text == "auto" && !arguments.has(flag.name)) return {};
      return arguments.flag(flag.name);
    case FlagKind::list: {
      json::Array words;
      for (const std::string& w : arguments.list(flag.name)) words.emplace_back(w);
      if (words.size() == 1 && !flag.default_text.empty()) return words.front();
      return words;
    }
    case FlagKind::integer:
      return arguments.has_value(flag.name) ? json::Value(arguments.integer(flag.name)) : json::Value();
    case FlagKind::real:
      return arguments.has_value(flag.name) ? json::Value(arguments.real(flag.name)) : json::Value();
    case FlagKind::interval:
      if (arguments.has_value(flag.name) && arguments.interval(flag.name).seconds == 0)
        return arguments.interval(flag.name).count;
      break;
    case FlagKind::text:
    case FlagKind::choice:
    case FlagKind::path:
      break;
  }
  return arguments.has_value(flag.name) ? json::Value(arguments.text(flag.name)) : json::Value();
}

bool is_default(const Flag& flag, const std::vector<std::string>& values) {
  if (flag.kind == FlagKind::toggle && flag.default_text == "auto") return false;
  if (flag.kind == FlagKind::toggle) return (values.front() == "on") == on_by_default(flag);
  if (flag.kind == FlagKind::list && values.empty()) return flag.default_text.empty();
  if (values.size() != 1 || flag.default_text.empty()) return false;
  if (flag.kind == FlagKind::real) return parse_double(values.front()) == parse_double(flag.default_text);
  return values.front() == flag.default_text;
}

}  // namespace

Arguments::Arguments(const Command& command) : flags_(command.flags), positional_table_(command.positionals) {}

const Flag& Arguments::find(std::string_view name) const {
  if (const Flag* flag = find_flag(flags_, name)) return *flag;
  throw std::logic_error("no flag named " + std::string(name));
}

const std::string* Arguments::value_of(const Flag& flag) const {
  const auto given = given_.find(flag.name);
  if (given != given_.end() && !given->second.values.empty()) return &given->second.values.back();
  return flag.default_text.empty() ? nullptr : &flag.default_text;
}

std::string Arguments::needed(std::string_view name, std::initializer_list<FlagKind> kinds) const {
  const Flag& flag = find(name);
  if (std::find(kinds.begin(), kinds.end(), flag.kind) == kinds.end()) {
    throw std::logic_error("--" + flag.name + " is of another kind");
  }
  if (const std::string* value = value_of(flag)) return *value;
  throw Error("--" + flag.name + ": needed");
}

bool Arguments::has(std::string_view name) const {
  const Flag& flag = find(name);
  const auto given = given_.find(name);
  return given != given_.end() && (given->second.by_user || !is_default(flag, given->second.values));
}

bool Arguments::typed(std::string_view name) const {
  const auto given = given_.find(find(name).name);
  return given != given_.end() && given->second.by_user;
}

bool Arguments::set(std::string_view name) const { return given_.contains(find(name).name); }

bool Arguments::has_value(std::string_view name) const { return value_of(find(name)) != nullptr; }

bool Arguments::flag(std::string_view name) const {
  const Flag& flag = find(name);
  if (flag.kind != FlagKind::toggle) throw std::logic_error("--" + flag.name + " is no toggle");
  const std::string* value = value_of(flag);
  return value != nullptr && *value == "on";
}

std::string Arguments::text(std::string_view name) const {
  return needed(name, {FlagKind::text, FlagKind::choice, FlagKind::path, FlagKind::interval});
}

Interval Arguments::interval(std::string_view name) const {
  const auto interval = parse_interval(needed(name, {FlagKind::interval}));
  if (!interval) throw std::logic_error("the default of --" + std::string(name) + " is no interval");
  return *interval;
}

std::int64_t Arguments::integer(std::string_view name) const {
  const auto number = parse_int64(needed(name, {FlagKind::integer}));
  if (!number) throw std::logic_error("the default of --" + std::string(name) + " is no integer");
  return *number;
}

double Arguments::real(std::string_view name) const {
  const auto number = parse_double(needed(name, {FlagKind::real, FlagKind::integer}));
  if (!number) throw std::logic_error("the default of --" + std::string(name) + " is no number");
  return *number;
}

std::vector<std::string> Arguments::list(std::string_view name) const {
  const Flag& flag = find(name);
  if (flag.kind != FlagKind::list) throw std::logic_error("--" + flag.name + " is no list");
  const auto given = given_.find(name);
  if (given != given_.end()) return given->second.values;
  return flag.default_text.empty() ? std::vector<std::string>{} : std::vector<std::string>{flag.default_text};
}

std::vector<std::string> Arguments::positionals(std::string_view name) const {
  const auto given = positionals_.find(name);
  if (given != positionals_.end()) return given->second;
  const bool known = std::any_of(positional_table_.begin(), positional_table_.end(),
                                 [&](const Positional& p) { return p.name == name; });
  if (!known) throw std::logic_error("no argument named " + std::string(name));
  return {};
}

std::string Arguments::positional(std::string_view name) const {
  const std::vector<std::string> values = positionals(name);
  if (!values.empty()) return values.front();
  for (const Positional& p : positional_table_) {
    if (p.name == name) throw Error(p.metavar + ": needed");
  }
  throw std::logic_error("no argument named " + std::string(name));
}

void parse_config(const Command& command, const json::Value& config, Arguments& base, const std::string& name) {
  if (!config.is_object()) {
    throw Error(name + ": expected an object of flags, found " + std::string(json::type_name(config.type())));
  }
  for (const auto& [key, value] : config.as_object()) {
    const std::string label = name + ": \"" + excerpt(key) + "\"";
    const Flag* flag = find_flag(command.flags, key);
    if (flag == nullptr) {
      std::vector<std::string> names;
      for (const Flag& f : command.flags)
        if (f.in_config) names.push_back(f.name);
      throw Error(label + ": unknown name" + did_you_mean(key, names));
    }
    if (!flag->in_config) throw Error(label + ": can be set only on the command line");
    if (value.is_null()) continue;
    Arguments::Given given{.values = {}, .by_user = false};
    try {
      given.values = words_of(*flag, value);
    } catch (const Error& e) {
      throw Error(label + ": " + e.what());
    }
    for (const std::string& word : given.values) {
      if (word.find('\0') != std::string::npos) throw Error(label + ": contains a NUL character");
      check_value(*flag, word, label);
    }
    const auto before = base.given_.find(key);
    if (before == base.given_.end() || !before->second.by_user) base.given_.insert_or_assign(key, std::move(given));
  }
}

json::Value resolved(const Command& command, const Arguments& arguments) {
  json::Object config;
  for (const Flag& flag : command.flags) {
    if (flag.in_config) config.set(flag.name, value_for_config(flag, arguments));
  }
  return config;
}

}  // namespace fp8::cli
