// Reading `quantization_config`. Keys that change the values of weights must be known and supported; keys for the
// quantization of activations by a server must be known.
#include "quantization_config.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/hf/export.h"
#include "fp8/json/json.h"
#include "keys.h"

namespace fp8::hf {
namespace {

constexpr std::string_view kExpression = "re:";
constexpr const char* kNoCache = "a quantized key/value cache is not supported";

// An object of the configuration, whose values are compared with those that are supported.
class Settings : public Keys {
 public:
  Settings(const json::Object& object, const std::string& what) : Keys(object, what), object_(object) {}

  const json::Object& object(std::string_view key) const { return object_.get_object(key, what()); }

  // Throws unless the value of `key` is `wanted`; a missing one is accepted if `optional`.
  void require(std::string_view key, const json::Value& wanted, bool optional) const {
    const json::Value* v = find(key);
    if (v == nullptr ? optional : *v == wanted) return;
    refuse(key, v, json::dump(wanted) + " is");
  }
  // Throws unless the text of `key` is one of `known`; returns it.
  std::string one_of(std::string_view key, const std::vector<std::string>& known) const {
    const json::Value* v = find(key);
    if (v != nullptr && v->is_string() && std::find(known.begin(), known.end(), v->as_string()) != known.end())
      return v->as_string();
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : " and ") + k;
    refuse(key, v, list + (known.size() == 1 ? " is" : " are"));
  }
  // Throws if `key` is present, for `reason`.
  void refuse_key(std::string_view key, const std::string& reason) const {
    if (find(key) != nullptr) throw Error(what() + ": \"" + std::string(key) + "\": " + reason);
  }

 private:
  [[noreturn]] void refuse(std::string_view key, const json::Value* v, const std::string& supported) const {
    const std::string found = v == nullptr ? "missing" : terminal_safe(excerpt(json::dump(*v)));
    throw Error(what() + ": \"" + std::string(key) + "\": " + found + " is not supported (" + supported + ")");
  }

  const json::Object& object_;
};

Settings inside(const Settings& keys, const char* key) { return {keys.object(key), keys.what() + ": " + key}; }

json::Value block_size() { return json::Array{kQuantizationBlock, kQuantizationBlock}; }

// The lists of modules under the keys that are present; a single empty one if none is.
std::vector<ModuleList> module_lists(const Settings& keys, const std::vector<const char*>& names) {
  std::vector<ModuleList> lists;
  for (const char* name : names) {
    const json::Value* value = keys.find(name);
    if (value == nullptr) continue;
    if (!value->is_array()) throw Error(keys.what() + ": \"" + name + "\" is not an array");
    ModuleList list{.key = name, .entries = {}};
    for (const json::Value& entry : value->as_array()) {
      if (!entry.is_string() || entry.as_string().empty())
        throw Error(keys.what() + ": \"" + name + "\" holds " + terminal_safe(excerpt(json::dump(entry))) +
                    ", not the name of a module");
      list.entries.push_back(entry.as_string());
    }
    lists.push_back(std::move(list));
  }
  if (lists.empty()) lists.push_back({.key = names.front(), .entries = {}});
  return lists;
}

// transformers' fine-grained FP8 and AutoFP8.
QuantizationConfig parse_fp8(const Settings& keys) {
  QuantizationConfig config;
  keys.require("fmt", "e4m3", true);
  (void)keys.one_of("activation_scheme", {"dynamic", "static"});
  keys.refuse_key("kv_cache_scheme", kNoCache);
  config.layout = keys.find("weight_block_size") == nullptr ? ScaleLayout::tensor : ScaleLayout::block;
  config.suffix = config.layout == ScaleLayout::block ? "_scale_inv" : "_scale";
  keys.require("weight_block_size", block_size(), true);
  config.excluded = module_lists(keys, {"modules_to_not_convert", "ignored_layers"});
  return config;
}

// Arguments of floats of `bits` bits in compressed-tensors.
void require_float(const Settings& keys, int bits) {
  keys.require("num_bits", bits, false);
  keys.require("type", "float", false);
  keys.require("symmetric", true, true);
}

// The layout of the scales of a group's weights.
ScaleLayout parse_weights(const Settings& weights, bool fp4) {
  require_float(weights, fp4 ? 4 : 8);
  weights.require("dynamic", false, true);
  if (fp4) {
    (void)weights.one_of("strategy", {"tensor_group"});
    weights.require("group_size", kFp4Group, false);
    return ScaleLayout::group;
  }
  const std::string strategy = weights.one_of("strategy", {"channel", "tensor", "block"});
  if (strategy == "block") weights.require("block_structure", block_size(), false);
  return strategy == "block" ? ScaleLayout::block : strategy == "tensor" ? ScaleLayout::tensor : ScaleLayout::row;
}

QuantizationConfig parse_compressed_tensors(const Settings& keys) {
  QuantizationConfig config;
  config.suffix = "_scale";
  const bool fp4 = keys.one_of("format", {"float-quantized", kNvfp4}) == kNvfp4;
  keys.refuse_key("kv_cache_scheme", kNoCache);
  if (const json::Value* sparsity = keys.find("sparsity_config"); sparsity != nullptr && sparsity->is_object())
    if (!sparsity->as_object().empty()) inside(keys, "sparsity_config").require("format", "dense", false);
  if (const json::Value* transform = keys.find("transform_config"); transform != nullptr)
    if (!transform->is_object() || !transform->as_object().empty())
      throw Error(keys.what() + ": \"transform_config\": transformed weights are not supported");
  const json::Object& groups = keys.object("config_groups");
  if (groups.size() != 1)
    throw Error(keys.what() + ": \"config_groups\": " + std::to_string(groups.size()) +
                " groups are not supported (1 is)");
  const auto& [name, group] = *groups.begin();
  const std::string what = keys.what() + ": " + terminal_safe(excerpt(name));
  if (!group.is_object()) throw Error(what + ": not an object");
  const Settings of_group(group.as_object(), what);
  of_group.require("targets", json::Array{"Linear"}, false);
  of_group.refuse_key("output_activations", "quantized outputs are not supported");
  config.layout = parse_weights(inside(of_group, "weights"), fp4);
  if (of_group.find("input_activations") != nullptr) require_float(inside(of_group, "input_activations"), fp4 ? 4 : 8);
  config.excluded = module_lists(keys, {"ignore"});
  return config;
}

}  // namespace

QuantizationConfig parse_quantization_config(const json::Value& value, const std::string& what) {
  const std::string inner = what + ": quantization_config";
  if (!value.is_object()) throw Error(inner + ": not an object");
  const Settings keys(value.as_object(), inner);
  const std::string method = keys.one_of("quant_method", {"fp8", "compressed-tensors"});
  return method == "fp8" ? parse_fp8(keys) : parse_compressed_tensors(keys);
}

bool names_module(const ModuleList& list, std::string_view module) {
  return std::any_of(list.entries.begin(), list.entries.end(), [&](std::string_view entry) {
    if (entry.starts_with(kExpression) || entry.size() > module.size()) return false;
    if (entry.size() == module.size()) return entry == module;
    return (module.starts_with(entry) && module[entry.size()] == '.') ||
           (module.ends_with(entry) && module[module.size() - entry.size() - 1] == '.');
  });
}

bool has_expression(const ModuleList& list) {
  return std::any_of(list.entries.begin(), list.entries.end(),
                     [](std::string_view entry) { return entry.starts_with(kExpression); });
}

}  // namespace fp8::hf
