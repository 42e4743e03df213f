// A PEFT adapter: settings that change the arithmetic are checked, then the tensors are compared with the model.
#include "fp8/hf/adapter.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <vector>

#include "fp8/base/digest.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "lora.h"

namespace fp8::hf {
namespace {

namespace fs = std::filesystem;
constexpr json::Limits kConfigLimits{.max_depth = 64, .max_bytes = std::size_t{16} << 20U};
constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
constexpr std::size_t kPiece = std::size_t{1} << 20U;  // bytes that are digested at a time

std::string settings_path(const std::string& folder) { return folder + "/" + kAdapterConfig; }

std::string tensors_path(const std::string& folder) { return folder + "/" + kAdapterTensors; }

// The file of an adapter, or why there is none.
std::string tensors_of(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) throw Error(path + ": not a folder");
  if (!fs::exists(settings_path(path), ignored))
    throw Error(settings_path(path) + ": missing; not the folder of a PEFT adapter");
  if (!fs::is_regular_file(settings_path(path), ignored)) throw Error(settings_path(path) + ": not a regular file");
  if (fs::exists(tensors_path(path), ignored)) return tensors_path(path);
  throw Error(tensors_path(path) + ": missing" +
              (fs::exists(path + "/adapter_model.bin", ignored) ? "; only safetensors files are read" : ""));
}

// Whether a setting is as if it were not there.
bool is_off(const json::Value& v) {
  return v.is_null() || (v.is_bool() && !v.as_bool()) || (v.is_array() && v.as_array().empty()) ||
         (v.is_object() && v.as_object().empty());
}

// Throws for settings under which an adapter computes something else.
void refuse_unsupported(const Keys& keys) {
  const std::string type = keys.text("peft_type", "");
  if (type != "LORA") keys.fail("peft_type \"" + excerpt(type) + "\" is not supported (LORA is)");
  const std::string bias = keys.text("bias", "none");
  if (bias != "none") keys.fail("\"bias\": \"" + excerpt(bias) + "\": trained biases are not supported");
  for (const char* key :
       {"use_dora", "lora_bias", "fan_in_fan_out", "use_qalora", "use_bdlora", "alora_invocation_tokens",
        "rank_pattern", "alpha_pattern", "modules_to_save", "layer_replication", "trainable_token_indices",
        "target_parameters", "arrow_config", "kasa_config", "monteclora_config", "velora_config"}) {
    const json::Value* v = keys.find(key);
    if (v != nullptr && !is_off(*v)) keys.fail("\"" + std::string(key) + "\" is not supported");
  }
  // The others change the model's weights too.
  static constexpr std::array kHarmless{"gaussian", "eva", "orthogonal"};
  const json::Value* init = keys.find("init_lora_weights");
  if (init == nullptr || init->is_bool()) return;
  if (!init->is_string() || std::ranges::find(kHarmless, init->as_string()) == kHarmless.end())
    keys.fail("\"init_lora_weights\": " + excerpt(json::dump(*init)) + " is not supported: it changes the model");
}

LoraConfig read_settings(const std::string& path) {
  const json::Value value = json::parse_file(path, kConfigLimits);
  if (!value.is_object()) throw Error(path + ": not an object");
  const Keys keys(value.as_object(), path);
  refuse_unsupported(keys);
  return read_lora_numbers(keys);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out;
  for (const std::int64_t extent : shape) out += (out.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + out + "]";
}

}  // namespace

AdapterFolder::AdapterFolder(const std::string& path, const ModelConfig& model)
    : path_(path), lora_(), file_(tensors_of(path)) {
  lora_ = read_settings(settings_path(path));
  find_targets(model);
  check_lora(lora_, model, settings_path(path));
}

bool AdapterFolder::looks_like(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) && fs::exists(settings_path(path), ignored);
}

// The linears of the model with both tensors, of the right shapes. Throws for any other tensor.
void AdapterFolder::find_targets(const ModelConfig& model) {
  std::set<std::string> known;
  for (const std::string& module : linear_modules(model)) {
    const auto [out, in] = linear_extent(model, module);
    const std::string name = std::string(kAdapterPrefix) + module;
    const TensorInfo *a = file_.find(name + std::string(kA)), *b = file_.find(name + std::string(kB));
    if (a == nullptr && b == nullptr) continue;
    for (const auto& [tensor, end, shape] :
         {std::tuple{a, kA, std::vector{lora_.rank, in}}, {b, kB, {out, lora_.rank}}}) {
      if (tensor == nullptr) throw Error(file_.path() + ": no tensor \"" + name + std::string(end) + "\"");
      if (tensor->shape != shape)
        throw Error(file_.path() + ": tensor \"" + tensor->name + "\" is " + shape_text(tensor->shape) + ", expected " +
                    shape_text(shape));
      known.insert(tensor->name);
    }
    lora_.targets.push_back(module);
  }
  for (const TensorInfo& t : file_.tensors())
    if (!known.contains(t.name))
      throw Error(file_.path() + ": tensor \"" + terminal_safe(excerpt(t.name)) +
                  "\" is not that of an adapter for a linear of this model's layers");
  if (lora_.targets.empty()) throw Error(file_.path() + ": has no adapter");
}

const TensorInfo& AdapterFolder::at(const std::string& name) const {
  const TensorInfo* tensor = file_.find(std::string(kAdapterPrefix) + name);
  if (tensor == nullptr) throw Error(file_.path() + ": no tensor \"" + name + "\"");
  return *tensor;
}

void AdapterFolder::read_rows(const std::string& name, std::int64_t first, std::int64_t count,
                              std::span<float> out) const {
  file_.read_rows_f32(at(name), first, count, out);
}

std::string AdapterFolder::digest() const {
  Digester digester;
  const auto add = [&](const std::string& text) { digester.update(std::as_bytes(std::span(text))); };
  add(json::dump(lora_json(lora_)));
  std::vector<std::byte> piece;
  for (const TensorInfo& t : file_.tensors()) {
    add(t.name + " " + t.dtype + " ");
    for (std::uint64_t at = 0; at < t.end - t.begin; at += piece.size()) {
      piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, t.end - t.begin - at)));
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
