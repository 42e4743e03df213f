#include "mapping.h"

#include <algorithm>

#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::foreign {

std::string flag_text(std::string_view flag, const json::Value& value) {
  const std::string name(flag);
  if (value.is_null()) return {};
  if (value.is_bool()) return (value.as_bool() ? "--" : "--no-") + name;
  if (value.is_array()) {
    std::string all;
    for (const json::Value& one : value.as_array()) all += (all.empty() ? "" : " ") + flag_text(flag, one);
    return all;
  }
  return "--" + name + " " + (value.is_string() ? value.as_string() : json::dump(value));
}

std::int64_t whole_part(double x) { return static_cast<std::int64_t>(std::clamp(x, -1e15, 1e15)); }

std::int64_t product_of(std::initializer_list<std::int64_t> sizes) {
  double all = 1;
  for (const std::int64_t size : sizes) all *= static_cast<double>(size);
  return whole_part(std::min(all, 1e9));
}

Mapping::Mapping(Import& import, const Document& document, std::string prefix)
    : import_(import), document_(document), keys_(document, import.answers), prefix_(std::move(prefix)) {}

std::string Mapping::text(std::string_view path, std::string_view fallback) const {
  return keys_.text(path_of(path)).value_or(std::string(fallback));
}

std::int64_t Mapping::whole(std::string_view path, std::int64_t fallback) const {
  return keys_.whole(path_of(path)).value_or(fallback);
}

std::int64_t Mapping::positive(std::string_view path, std::int64_t fallback) const {
  const std::int64_t n = whole(path, fallback);
  if (n < 1 || n > 1'000'000'000) keys_.refuse(path_of(path), "must be from 1 to 1000000000");
  return n;
}

double Mapping::number(std::string_view path, double fallback) const {
  return keys_.number(path_of(path)).value_or(fallback);
}

bool Mapping::flag(std::string_view path, bool fallback) const { return keys_.flag(path_of(path)).value_or(fallback); }

std::string Mapping::pair(std::string_view path, double first, double second) const {
  if (const json::Value* value = keys_.value(path_of(path)); value != nullptr && !value->is_null()) {
    const json::Array* two = value->is_array() ? &value->as_array() : nullptr;
    if (two == nullptr || two->size() != 2 || !two->front().is_number() || !two->back().is_number())
      keys_.refuse(path_of(path), "must be a list of two numbers");
    first = two->front().as_double();
    second = two->back().as_double();
  }
  return format_double(first) + "," + format_double(second);
}

void Mapping::answer(std::string_view path, const json::Value& fallback, Class cls, std::string here, std::string why) {
  if (has(path)) return note(path, cls, std::move(here), std::move(why));
  if (cls == Class::mapped || cls == Class::no_effect) cls = Class::trainer_default;
  import_.answers.push_back({document_.path, path_of(path), fallback, std::move(here), cls, std::move(why)});
}

void Mapping::set(std::string_view path, const json::Value& fallback, std::string_view flag, json::Value value,
                  Class cls, std::string why) {
  answer(path, fallback, cls, flag_text(flag, value), std::move(why));
  import_.set(flag, std::move(value));
}

void Mapping::assume_ranks(std::int64_t smallest) {
  if (import_.ranks || import_.options.ranks || smallest <= 1) return;
  import_.ranks = smallest;
  import_.add_default("(ranks)", smallest, "mpirun -n " + std::to_string(smallest),
                      "no file states the number of GPUs: the smallest mesh; --ranks N sets it");
}

void Mapping::note(std::string_view path, Class cls, std::string here, std::string why) {
  keys_.answer(path_of(path), cls, std::move(here), std::move(why));
}

void Mapping::need(std::string_view path, double value, std::string why) {
  number(path, value) == value ? note(path, Class::mapped, {}) : refuse(path, std::move(why));
}

}  // namespace fp8::foreign
