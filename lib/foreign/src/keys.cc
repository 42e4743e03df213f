// Keys of a document and their answers.
#include "fp8/foreign/keys.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "builder.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"

namespace fp8::foreign {
namespace {

// Values that trainers convert to switches when they are in quotes, or that YAML 1.1 reads as such.
constexpr std::array<std::string_view, 6> kOn = {"true", "yes", "on", "t", "y", "1"};
constexpr std::array<std::string_view, 6> kOff = {"false", "no", "off", "f", "n", "0"};

std::string lower(std::string_view text) {
  std::string all(text);
  std::ranges::transform(all, all.begin(), [](unsigned char c) { return std::tolower(c); });
  return all;
}

std::string shown(const json::Value& value) {
  if (value.is_string()) return "\"" + excerpt(value.as_string()) + "\"";
  if (value.is_array() || value.is_object()) return std::string(json::type_name(value.type()));
  if (value.is_int()) return std::to_string(value.as_int());
  if (value.is_number()) return format_double(value.as_double());
  return value.is_bool() ? (value.as_bool() ? "true" : "false") : "null";
}

// shown(), and what a value like ${SEED} lacks: trainers whose launchers substitute variables have them in files.
std::string found(const json::Value& value) {
  const std::string text = value.is_string() ? value.as_string() : "";
  const std::size_t open = text.find("${"), close = text.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return shown(value);
  return shown(value) + "; variables of the environment are not substituted: write the value of " +
         excerpt(text.substr(open + 2, close - open - 2));
}

// Calls f(path, value) for the members of a map and the maps of an array; whether there are none.
template <class F>
bool for_children(const std::string& path, const json::Value& value, const F& f) {
  bool leaf = true;
  if (value.is_object())
    for (const auto& [key, member] : value.as_object()) {
      f(member_path(path, key), member);
      leaf = false;
    }
  if (value.is_array())
    for (std::size_t i = 0; i < value.as_array().size(); ++i)
      if (const json::Value& element = value.as_array()[i]; element.is_object()) {
        f(element_path(path, i), element);
        leaf = false;
      }
  return leaf;
}

// Whether a value switches off what its key is for.
bool is_off(const json::Value& value) {
  if (value.is_bool()) return !value.as_bool();
  if (value.is_string()) return value.as_string().empty() || lower(value.as_string()) == "none";
  return (value.is_array() && value.as_array().empty()) || (value.is_object() && value.as_object().empty());
}

}  // namespace

Keys::Keys(const Document& document, std::vector<Answer>& answers) : document_(document), answers_(answers) {}

const json::Value* Keys::value(std::string_view path) const {
  asked_.emplace(path);
  const json::Value* found = find(document_, path);
  return found != nullptr && found->is_null() ? nullptr : found;
}

bool Keys::has(std::string_view path) const { return value(path) != nullptr; }

std::string Keys::what(std::string_view path) const {
  const auto line = document_.line.find(path);
  return document_.path + ": " + (line == document_.line.end() ? "" : "line " + std::to_string(line->second) + ": ") +
         std::string(path);
}

void Keys::refuse(std::string_view path, const std::string& reason) const { throw Error(what(path) + ": " + reason); }

std::optional<std::string> Keys::text(std::string_view path) const {
  const json::Value* v = value(path);
  if (v == nullptr) return std::nullopt;
  if (v->is_string()) return v->as_string();
  if (v->is_array() || v->is_object()) refuse(path, "needs a text, found " + shown(*v));
  return shown(*v);
}

std::optional<double> Keys::number(std::string_view path) const {
  const json::Value* v = value(path);
  if (v == nullptr) return std::nullopt;
  const json::Value n = v->is_string() ? scalar_value(v->as_string()) : *v;
  if (n.is_null()) return std::nullopt;
  if (!n.is_number()) refuse(path, "needs a number, found " + found(*v));
  return n.as_double();
}

std::optional<std::int64_t> Keys::whole(std::string_view path) const {
  const std::optional<double> x = number(path);
  if (!x) return std::nullopt;
  if (std::floor(*x) != *x || std::abs(*x) > 1e15) refuse(path, "needs a whole number, found " + shown(*value(path)));
  return static_cast<std::int64_t>(*x);
}

std::optional<bool> Keys::flag(std::string_view path) const {
  const json::Value* v = value(path);
  if (v == nullptr) return std::nullopt;
  if (v->is_bool()) return v->as_bool();
  const std::string word = v->is_string() || v->is_int() ? lower(*text(path)) : "";
  if (std::ranges::find(kOn, word) != kOn.end()) return true;
  if (std::ranges::find(kOff, word) != kOff.end()) return false;
  if (v->is_string() && scalar_value(word).is_null()) return std::nullopt;
  refuse(path, "needs true or false, found " + found(*v));
}

bool Keys::answered(std::string_view path) const {
  for (std::size_t end = path.size();;) {
    if (answered_.contains(path.substr(0, end))) return true;
    end = path.find_last_of(".[", end - 1);
    if (end == std::string_view::npos || end == 0) return false;
  }
}

void Keys::answer(std::string_view path, Class cls, std::string here, std::string why) {
  asked_.emplace(path);
  const json::Value* found = find(document_, path);
  if (found != nullptr && !answered(path)) answer_leaves(std::string(path), *found, cls, here, why);
}

void Keys::answer_leaves(const std::string& path, const json::Value& value, Class cls, const std::string& here,
                         const std::string& why) {
  if (answered_.contains(path)) return;
  const bool leaf = for_children(path, value, [&](const std::string& child, const json::Value& member) {
    answer_leaves(child, member, cls, here, why);
  });
  answered_.emplace(path);
  if (leaf) answers_.push_back({document_.path, path, value, here, cls, why});
}

std::string Keys::suggestion(const std::string& path, std::span<const KeyRow> rows) {
  constexpr int kMostSuggestions = 100;  // a file with more unknown keys is not one of the trainer
  if (++suggestions_ > kMostSuggestions) return "";
  std::vector<std::string> known(asked_.begin(), asked_.end());
  for (const KeyRow& row : rows)
    if (row.glob.find('*') == std::string_view::npos) known.emplace_back(row.glob);
  return cli::did_you_mean(path, known);
}

void Keys::answer_unknown(const std::string& path, std::span<const KeyRow> rows) {
  const json::Value* const value = find(document_, path);
  if (value == nullptr || answered(path)) return;
  // A reader that knows the key has not read this value: it is of another type.
  const std::string why = asked_.contains(path) ? "its value is not read here: found " + shown(*value)
                                                : "is not known" + suggestion(path, rows);
  // answer() would make this key one that is suggested.
  answer_leaves(path, *value, Class::no_counterpart, "", why);
}

void Keys::rest_of(const std::string& path, const json::Value& value, std::span<const KeyRow> rows) {
  if (!path.empty()) {
    if (answered_.contains(path)) return;
    // A row with `*` answers leaves, so that a row for all of a map comes after rows for parts of it.
    const bool map = value.is_object() && !value.as_object().empty();
    const auto row =
        std::ranges::find_if(rows, [&](const KeyRow& r) { return map ? r.glob == path : glob_match(r.glob, path); });
    if (value.is_null()) return answer(path, Class::no_effect, "", "null: as without the key");
    if (row != rows.end() && row->cls == Class::no_counterpart && is_off(value))
      return answer(path, Class::mapped, "", "off");
    if (row != rows.end()) return answer(path, row->cls, std::string(row->here), std::string(row->why));
  }
  const bool leaf = for_children(
      path, value, [&](const std::string& child, const json::Value& member) { rest_of(child, member, rows); });
  if (leaf && !path.empty()) answer_unknown(path, rows);
}

void Keys::rest(std::span<const KeyRow> rows, std::span<const KeyRow> more) {
  std::vector<KeyRow> all(rows.begin(), rows.end());
  all.insert(all.end(), more.begin(), more.end());
  rest_of("", document_.root, all);
}

}  // namespace fp8::foreign
