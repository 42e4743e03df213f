// A PEFT adapter: settings that change the arithmetic are checked, then the tensors are compared with the model.
#include "fp8/hf/adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>
#include <vector>

#include "adapter_targets.h"
#include "fp8/base/digest.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "lora.h"
#include "shape_text.h"

namespace fp8::hf {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
constexpr std::size_t kPart = std::string_view("lora_A").size();
constexpr std::size_t kDigestPiece = std::size_t{1} << 20U;  // bytes that are digested at a time

std::string settings_path(const std::string& folder) { return folder + "/" + kAdapterConfig; }

std::string tensors_path(const std::string& folder) { return folder + "/" + kAdapterTensors; }

// The file of an adapter, or why there is none.
std::string tensors_file(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) throw Error(path + ": not a folder");
  if (!fs::exists(settings_path(path), ignored))
    throw Error(settings_path(path) + ": missing; not the folder of a PEFT adapter");
  if (!fs::is_regular_file(settings_path(path), ignored)) throw Error(settings_path(path) + ": not a regular file");
  if (fs::exists(tensors_path(path), ignored)) return tensors_path(path);
  throw Error(tensors_path(path) + ": missing" +
              (fs::exists(path + "/adapter_model.bin", ignored) ? "; only safetensors files are read" : ""));
}

// Keys that are read.
constexpr std::array kRead{"peft_type",
                           "bias",
                           "r",
                           "lora_alpha",
                           "lora_dropout",
                           "use_rslora",
                           "target_modules",
                           "layers_pattern",
                           "exclude_modules",
                           "init_lora_weights",
                           "layers_to_transform"};
// Keys without an effect on what a trained adapter on linears of layers computes: origin, first values, and settings of
// kinds that are refused by another key.
constexpr std::array kHarmless{"auto_mapping",       "base_model_name_or_path",
                               "revision",           "task_type",
                               "inference_mode",     "peft_version",
                               "loftq_config",       "eva_config",
                               "corda_config",       "lora_ga_config",
                               "qalora_group_size",  "runtime_config",
                               "megatron_config",    "megatron_core",
                               "ensure_weight_tying"};

// Whether a setting is as if it were not there.
bool is_off(const json::Value& v) {
  return v.is_null() || (v.is_bool() && !v.as_bool()) || (v.is_array() && v.as_array().empty()) ||
         (v.is_object() && v.as_object().empty()) || (v.is_string() && v.as_string().empty());
}

// Throws for settings under which an adapter computes something else, or may, because their kind is not known.
void refuse_unsupported_settings(const json::Object& settings, const Keys& keys) {
  const std::string type = keys.text("peft_type", "");
  if (type != "LORA") keys.fail("peft_type \"" + excerpt(type) + "\" is not supported (LORA is)");
  const std::string bias = keys.text("bias", "none");
  if (bias != "none") keys.fail("\"bias\": \"" + excerpt(bias) + "\": trained biases are not supported");
  const auto among = [](const auto& names, const std::string& key) { return std::ranges::count(names, key) > 0; };
  for (const auto& [key, value] : settings)
    if (!is_off(value) && !among(kRead, key) && !among(kHarmless, key))
      keys.fail("\"" + terminal_safe(excerpt(key)) + "\" is not supported");
  // The others change the model's weights too.
  static constexpr std::array kSameModel{"gaussian", "eva", "orthogonal"};
  const json::Value* init = keys.find("init_lora_weights");
  if (init == nullptr || init->is_bool()) return;
  if (!init->is_string() || !among(kSameModel, init->as_string()))
    keys.fail("\"init_lora_weights\": " + excerpt(json::dump(*init)) + " is not supported: it changes the model");
}

LoraConfig read_settings(const std::string& path, const ModelConfig& model) {
  const json::Value value = json::parse_file(path, kConfigLimits);
  if (!value.is_object()) throw Error(path + ": not an object");
  const Keys keys(value.as_object(), path);
  refuse_unsupported_settings(value.as_object(), keys);
  LoraConfig lora = read_lora_numbers(keys);
  lora.targets = target_modules(keys, model);
  check_lora(lora, model, path);
  return lora;
}

}  // namespace

AdapterFolder::AdapterFolder(const std::string& path, const ModelConfig& model)
    : path_(path), lora_(), file_(tensors_file(path)) {
  lora_ = read_settings(settings_path(path), model);
  check_tensors(model);
}

void AdapterFolder::check_tensors(const ModelConfig& model) const {
  const std::set<std::string> targets(lora_.targets.begin(), lora_.targets.end());
  std::set<std::string> known;
  for (const std::string& module : linear_modules(model)) {
    const auto [out, in] = linear_extent(model, module);
    for (const auto& [end, shape] : {std::pair{kA, std::vector{lora_.rank, in}}, {kB, {out, lora_.rank}}}) {
      const TensorInfo* tensor = file_.find(std::string(kAdapterPrefix) + module + std::string(end));
      if (tensor == nullptr && !targets.contains(module)) continue;
      if (tensor == nullptr)
        throw Error(file_.path() + ": no " + std::string(end.substr(1, kPart)) + " for " + module +
                    ", which target_modules names");
      if (!targets.contains(module))
        throw Error(file_.path() + ": tensor \"" + tensor->name + "\" is on a linear that the settings do not select");
      if (tensor->shape != shape)
        throw Error(file_.path() + ": tensor \"" + tensor->name + "\" is " + shape_text(tensor->shape) + ", expected " +
                    shape_text(shape));
      known.insert(tensor->name);
    }
  }
  for (const TensorInfo& t : file_.tensors())
    if (!known.contains(t.name))
      throw Error(file_.path() + ": tensor \"" + terminal_safe(excerpt(t.name)) +
                  "\" is not that of an adapter for a linear of this model's layers");
}

const TensorInfo& AdapterFolder::at(const std::string& name) const {
  const TensorInfo* tensor = file_.find(std::string(kAdapterPrefix) + name);
  if (tensor == nullptr) throw Error(file_.path() + ": no tensor \"" + name + "\"");
  return *tensor;
}

void AdapterFolder::read_rows(const std::string& name, std::int64_t first, std::int64_t count,
                              std::span<float> out) const {
  const TensorInfo& tensor = at(name);
  file_.read_rows_f32(tensor, first, count, out);
  if (!std::ranges::all_of(out, [](float v) { return std::isfinite(v); }))
    throw Error(file_.path() + ": " + tensor.name + ": holds a value that is not finite");
}

std::string AdapterFolder::digest() const {
  Digester digester;
  const auto add = [&](const std::string& text) { digester.update(std::as_bytes(std::span(text))); };
  add(json::dump(lora_json(lora_)));
  std::vector<std::byte> piece;
  for (const TensorInfo& t : file_.tensors()) {
    add(t.name + " " + t.dtype + " ");
    for (std::uint64_t at = 0; at < t.end - t.begin; at += piece.size()) {
      piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kDigestPiece, t.end - t.begin - at)));
      file_.read(t, at, piece);
      digester.update(piece);
    }
  }
  return digester.finish().hex();
}

namespace {

// The targets as PEFT matches them: a name stands for every module that ends with it.
json::Array target_names(const LoraConfig& lora, const ModelConfig& config) {
  const auto last = [](const std::string& module) { return module.substr(module.rfind('.') + 1); };
  std::set<std::string> ends;
  for (const std::string& target : lora.targets) ends.insert(last(target));
  std::size_t meant = 0;
  for (const std::string& module : linear_modules(config)) meant += ends.contains(last(module)) ? 1 : 0;
  if (meant == lora.targets.size()) return {ends.begin(), ends.end()};
  return {lora.targets.begin(), lora.targets.end()};
}

// PEFT and vLLM declare alpha as an integer.
json::Value alpha_value(double alpha) {
  const auto whole = static_cast<std::int64_t>(alpha);
  return static_cast<double>(whole) == alpha ? json::Value(whole) : json::Value(alpha);
}

}  // namespace

json::Value adapter_config(const ModelConfig& config) {
  if (!config.lora) throw Error("adapter_config: the model has no adapters");
  const LoraConfig& lora = *config.lora;
  const json::Value* name = config.source.is_object() ? config.source.as_object().find("_name_or_path") : nullptr;
  const bool named = name != nullptr && name->is_string() && !name->as_string().empty();
  return json::object({{"alpha_pattern", json::Object()},
                       {"base_model_name_or_path", named ? *name : json::Value()},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"layers_pattern", nullptr},
                       {"layers_to_transform", nullptr},
                       {"lora_alpha", alpha_value(lora.alpha)},
                       {"lora_dropout", lora.dropout},
                       {"modules_to_save", nullptr},
                       {"peft_type", "LORA"},
                       {"r", lora.rank},
                       {"rank_pattern", json::Object()},
                       {"revision", nullptr},
                       {"target_modules", target_names(lora, config)},
                       {"task_type", "CAUSAL_LM"},
                       {"use_dora", false},
                       {"use_rslora", lora.rslora}});
}

}  // namespace fp8::hf
