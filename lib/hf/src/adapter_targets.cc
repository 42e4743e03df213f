// Module names compared with the keys of adapter_config.json as PEFT does.
#include "adapter_targets.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>

#include "fp8/json/json.h"
#include "fp8/token/pattern.h"

namespace fp8::hf {
namespace {

constexpr const char* kTargets = "target_modules";
constexpr const char* kLayersToTransform = "layers_to_transform";
constexpr const char* kPattern = "layers_pattern";
constexpr const char* kParent = "layers";  // name of the module whose children are the numbered layers

std::string quoted(const char* key) { return "\"" + std::string(key) + "\""; }

// A text or an array of texts.
struct Names {
  bool text = false;
  std::vector<std::string> list;  // the modules, if target_modules is a list
  std::set<std::string, std::less<>> set() const { return {list.begin(), list.end()}; }
};

// The value of a key; no names if it is missing.
Names names_of(const Keys& keys, const char* key) {
  const json::Value* v = keys.find(key);
  if (v == nullptr) return {};
  const std::string wrong = quoted(key) + " is neither a text nor an array of texts";
  if (v->is_string()) return {true, {v->as_string()}};
  if (!v->is_array()) keys.fail(wrong);
  Names names;
  for (const json::Value& name : v->as_array()) {
    if (!name.is_string()) keys.fail(wrong);
    names.list.push_back(name.as_string());
  }
  return names;
}

bool is_all_linear(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text == "all-linear";
}

// Whether `module` ends with one of the names, which begins after a dot. A mixture of experts has thousands of modules
// and may have as many names.
bool ends_with_name(std::string_view module, const std::set<std::string, std::less<>>& names) {
  for (std::size_t dot = module.find('.'); dot != std::string_view::npos; dot = module.find('.', dot + 1))
    if (names.contains(module.substr(dot + 1))) return true;
  return false;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Number of the layer of `model.layers.N.…`; -1 for other modules.
std::int64_t layer_of(const std::string& module) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!module.starts_with(kPrefix)) return -1;
  return parse_int64(module.substr(kPrefix.size(), module.find('.', kPrefix.size()) - kPrefix.size())).value_or(-1);
}

// The layers that `layers_to_transform` restricts names to; nothing without a restriction. No layer if
// `layers_pattern` names another parent than that of the layers.
std::optional<std::vector<std::int64_t>> layers_of(const Keys& keys, bool expression) {
  const json::Value* layers = keys.find(kLayersToTransform);
  for (const char* key : {kLayersToTransform, kPattern})
    if (expression && keys.find(key) != nullptr)
      keys.fail(quoted(key) + " contradicts a " + quoted(kTargets) + " that is a text");
  std::vector<std::int64_t> numbers;
  const auto add = [&](const json::Value& v) {
    if (!v.is_int()) keys.fail(quoted(kLayersToTransform) + " is neither an integer nor an array of integers");
    numbers.push_back(v.as_int());
  };
  if (layers != nullptr && layers->is_array()) {
    for (const json::Value& v : layers->as_array()) add(v);
  } else if (layers != nullptr) {
    add(*layers);
  }
  Names parents = names_of(keys, kPattern);
  if (parents.text && parents.list.front().empty()) parents.list.clear();
  for (const std::string& name : parents.list)
    if (!std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; }))
      keys.fail(quoted(kPattern) + ": \"" + excerpt(name) + "\" is not evaluated: it is no plain name");
  if (!parents.list.empty() && layers == nullptr) keys.fail(quoted(kPattern) + " needs " + quoted(kLayersToTransform));
  if (layers == nullptr || (layers->is_array() && numbers.empty())) return std::nullopt;
  if (!parents.list.empty() && !contains(parents.list, kParent)) numbers.clear();
  return numbers;
}

// The names in `modules` that `exclude_modules` does not contain.
std::vector<std::string> without_excluded(const Keys& keys, const std::vector<std::string>& modules) {
  const char* const key = "exclude_modules";
  const Names names = names_of(keys, key);
  if (names.list.empty() || (names.text && names.list.front().empty())) return modules;
  std::vector<bool> matched(modules.size());
  if (names.text) matched = token::full_matches(names.list.front(), modules, keys.what() + ": " + quoted(key));
  const auto excluded = names.set();
  std::vector<std::string> left;
  for (std::size_t i = 0; i < modules.size(); ++i)
    if (!matched[i] && (names.text || !(excluded.contains(modules[i]) || ends_with_name(modules[i], excluded))))
      left.push_back(modules[i]);
  return left;
}

// The names in `modules` that `target_modules` contains.
std::vector<std::string> named(const Keys& keys, const std::vector<std::string>& modules) {
  const Names names = names_of(keys, kTargets);
  if (keys.find(kTargets) == nullptr) keys.fail(quoted(kTargets) + " is missing");
  const auto layers = layers_of(keys, names.text);
  std::vector<std::string> found;
  if (names.text && is_all_linear(names.list.front())) {
    std::ranges::copy_if(modules, std::back_inserter(found), [](const std::string& m) { return layer_of(m) >= 0; });
    return found;
  }
  std::vector<bool> matched(modules.size());
  if (names.text) matched = token::full_matches(names.list.front(), modules, keys.what() + ": " + quoted(kTargets));
  const auto wanted = names.set();
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const std::string& module = modules[i];
    const bool in_layer = !layers || std::ranges::find(*layers, layer_of(module)) != layers->end();
    // A full name is not restricted to layers.
    const bool ends = wanted.contains(module) || (ends_with_name(module, wanted) && in_layer);
    if (names.text ? matched[i] : ends) found.push_back(module);
  }
  return found;
}

}  // namespace

std::vector<std::string> target_modules(const Keys& keys, const ModelConfig& model) {
  const std::vector<std::string> outside{"lm_head", "model.embed_tokens"};
  std::vector<std::string> modules = linear_modules(model);
  modules.insert(modules.end(), outside.begin(), outside.end());
  std::vector<std::string> targets = named(keys, without_excluded(keys, modules));
  for (const std::string& name : outside)
    if (contains(targets, name)) keys.fail(quoted(kTargets) + " names " + name + ", which is no linear of a layer");
  if (targets.empty()) keys.fail(quoted(kTargets) + " names no linear of a layer of this model");
  return targets;
}

}  // namespace fp8::hf
