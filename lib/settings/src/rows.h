// Rows of the table of settings, one function for each kind of flag. The last arguments of each are the pointers to
// members that lead from a configuration to the member which the flag sets; a row without them has no member. Private
// to the crate.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fp8/settings/setting.h"

namespace fp8::settings {

using cli::Arguments;
using cli::FlagKind;

// Headings of the help that mean more than a heading.
inline constexpr const char* kData = "Model and data";
inline constexpr const char* kPrecision = "Precision";
inline constexpr const char* kSaving = "Saving and watching";

// A row under construction: each function changes one field.
struct Row : Setting {
  std::optional<Resume> own_resume{};  // nothing: the Resume of its part of the table

  Row in(unsigned bits) { return tools = bits, *this; }
  Row resumes(Resume how) { return own_resume = how, *this; }
  Row changes(std::string name) { return change = std::move(name), *this; }
  Row recorded_as(std::string name) { return key = std::move(name), *this; }
  Row records(Record f) { return record = std::move(f), *this; }
  Row records_lora(Record f) { return of_adapters = true, records(std::move(f)); }
  Row recorded_if(bool (*f)(const PrecisionConfig&)) { return recorded = f, *this; }
  Row acts_under(bool (*f)(const quant::Recipe&)) { return acts = f, *this; }
  Row is(FlagKind kind) { return flag.kind = kind, *this; }
  Row is_needed() { return needed = true, *this; }
  Row is_digest() { return digest = true, *this; }
  Row metavar(std::string text) { return flag.metavar = std::move(text), *this; }
  Row between(double least, double most) { return flag.min = least, flag.max = most, *this; }
  Row suggests(std::vector<std::string> words) { return flag.suggestions = std::move(words), *this; }
  Row among(std::vector<std::string> words) { return flag.choices = std::move(words), is(FlagKind::choice); }
  Row falls_back_to(std::string text) { return flag.default_text = std::move(text), *this; }
  Row only_on_command_line() { return flag.in_config = false, *this; }

  // A member that `f` sets, and `g` returns for records.
  template <class C>
  Row reads(void (*f)(const Arguments&, C&), json::Value (*g)(const C&) = nullptr) {
    read = [f](const Arguments& a, Config& config) { f(a, static_cast<C&>(config)); };
    if (g != nullptr) value = [g](const Config& config) { return g(static_cast<const C&>(config)); };
    return *this;
  }
};

// Names of the values of a flag.
template <class T>
using Names = std::vector<std::pair<std::string, T>>;

// The configuration that has the first member of a path.
template <class C, class T, class... Path>
C owner_of(T C::*, Path...);

// The last member of a path: ((config.*first).*second).*third.
template <class C, class... Path>
auto& at(C& config, Path... path) {
  return (config.*....*path);
}

// Its type.
template <class... Path>
using Value = std::remove_reference_t<decltype(at(std::declval<decltype(owner_of(std::declval<Path>()...))&>(),
                                                  std::declval<Path>()...))>;

// The shortest decimal that is read as `x`, as a double: 0.9, not 0.8999999761581421.
inline double as_typed(float x) {
  std::array<char, 32> text{};
  const char* end = std::to_chars(text.data(), text.data() + text.size(), x).ptr;
  double value = x;
  (void)std::from_chars(text.data(), end, value);  // cannot fail on output of to_chars
  return value;
}

// The parts of all lists, which are separated by commas.
std::vector<std::string> parts_of(const std::vector<std::string>& lists);

// The name of a recipe, or one of `more`. Throws Error naming the flag if there is none of that name.
std::string known_recipe(const std::string& name, const std::string& flag = "recipe",
                         const std::vector<std::string>& more = {});
// Adds GLOB=NAME to the recipes of linears; false if `text` has no such form.
bool add_linear_recipe(const std::string& text, PrecisionConfig& precision);
// Sets the recipe to the last of the values of --recipe without a GLOB, and adds those with one.
void read_recipe(const Arguments& a, Config& config);

inline void read_value(const Arguments& a, const std::string& name, bool& value) { value = a.flag(name); }
inline void read_value(const Arguments& a, const std::string& name, std::string& value) { value = a.text(name); }
inline void read_value(const Arguments& a, const std::string& name, std::vector<std::string>& value) {
  value = a.list(name);
}
template <class T>
requires std::is_arithmetic_v<T>
void read_value(const Arguments& a, const std::string& name, T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    value = static_cast<T>(a.real(name));
  } else {
    value = static_cast<T>(a.integer(name));
  }
}
template <class T>
void read_value(const Arguments& a, const std::string& name, std::optional<T>& value) {
  if (std::is_same_v<T, bool> && !a.has(name)) return;  // a switch that is neither on nor off
  read_value(a, name, value.emplace());
}

inline json::Value json_of(float value) { return as_typed(value); }
inline json::Value json_of(const std::vector<std::string>& value) { return json::Array(value.begin(), value.end()); }
template <class T>
json::Value json_of(const T& value) {
  return value;
}
template <class T>
json::Value json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : json::Value();
}

// A row whose member is read and written by its type.
template <class... Path>
Row row(cli::Flag flag, Path... path) {
  Row made{{.flag = std::move(flag)}};
  if constexpr (sizeof...(path) > 0) {
    using C = decltype(owner_of(path...));
    made.read = [name = made.flag.name, path...](const Arguments& a, Config& config) {
      if (a.has_value(name)) read_value(a, name, at(static_cast<C&>(config), path...));
    };
    made.value = [path...](const Config& config) { return json_of(at(static_cast<const C&>(config), path...)); };
  }
  return made;
}

// A text without a default.
template <class... Path>
Row text(const std::string& name, const std::string& metavar, const std::string& help, Path... path) {
  return row({.name = name, .kind = FlagKind::text, .metavar = metavar, .help = help}, path...);
}

// A path without a default.
template <class... Path>
Row file(const std::string& name, const std::string& metavar, const std::string& help, Path... path) {
  return text(name, metavar, help, path...).is(FlagKind::path);
}

// A whole number from `min` on.
template <class... Path>
Row whole(const std::string& name, const std::string& fallback, double min, const std::string& help, Path... path) {
  return text(name, "N", help, path...).is(FlagKind::integer).falls_back_to(fallback).between(min, 1e15);
}

// A number from `min` to `max`.
template <class... Path>
Row real(const std::string& name, const std::string& fallback, double min, double max, const std::string& help,
         Path... path) {
  return text(name, "X", help, path...).is(FlagKind::real).falls_back_to(fallback).between(min, max);
}

// A switch.
template <class... Path>
Row toggle(const std::string& name, const std::string& fallback, const std::string& help, Path... path) {
  return row({.name = name, .default_text = fallback, .help = help}, path...);
}

// One of several names of values.
template <class... Path>
Row choice(const std::string& name, std::string fallback, Names<Value<Path...>> names, const std::string& help,
           Path... path) {
  using C = decltype(owner_of(path...));
  using Named = typename decltype(names)::value_type;
  std::vector<std::string> choices;
  for (const Named& one : names) choices.push_back(one.first);
  Row made = text(name, "NAME", help).falls_back_to(std::move(fallback)).among(std::move(choices));
  made.read = [name, names, path...](const Arguments& a, Config& config) {
    if (a.has_value(name))
      at(static_cast<C&>(config), path...) = std::ranges::find(names, a.text(name), &Named::first)->second;
  };
  made.value = [names, path...](const Config& config) -> json::Value {
    return std::ranges::find(names, at(static_cast<const C&>(config), path...), &Named::second)->first;
  };
  return made;
}

using Rows = std::vector<Setting>;

// Adds rows under a heading of the help, for `tools` and `resume` unless a row names its own.
void add(Rows& rows, const char* group, unsigned tools, Resume resume, std::vector<Row> more);

// Names of the orders of samples.
Names<data::SamplerKind> samplers();
// Names of all recipes.
std::vector<std::string> recipe_names();

// The rows of fp8-eval and fp8-inspect alone, and of fp8-plan alone.
void add_evaluation(Rows& rows);
void add_plan(Rows& rows);

}  // namespace fp8::settings
