// A model folder. Only files with a bare name in the same folder are opened.
#include "fp8/hf/folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/file_name.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "fused_experts.h"
#include "keys.h"

namespace fp8::hf {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kQuantization = "quantization_config";
constexpr std::uint64_t kMaxTokenizer = std::uint64_t{256} << 20U;
constexpr std::uint64_t kMaxText = std::uint64_t{16} << 20U;
constexpr std::array kTokenizerTexts{"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                     "chat_template.jinja", "chat_template.json"};
constexpr const char *kGenerationConfig = "generation_config.json", *kModelOpt = "hf_quant_config.json";
constexpr json::Limits kIndexLimits{.max_depth = 8, .max_bytes = std::size_t{256} << 20U};

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

void require_regular(const std::string& path) {
  std::error_code ignored;
  if (exists(path) && !fs::is_regular_file(path, ignored)) throw Error(path + ": not a regular file");
}

void add_text(const std::string& folder, const char* name, std::map<std::string, std::string>& files) {
  const std::string file = folder + "/" + name;
  if (!exists(file)) return;
  require_regular(file);
  files[name] = read_text_file(file, kMaxText);
}

// Tensor to shard file, as in the index.
std::map<std::string, std::string> read_index(const std::string& path) {
  const json::Value index = json::parse_file(path, kIndexLimits);
  if (!index.is_object()) throw Error(path + ": not an object");
  std::map<std::string, std::string> out;
  for (const auto& [tensor, file] : index.as_object().get_object("weight_map", path)) {
    if (!file.is_string()) throw Error(path + ": \"weight_map\" must map text to text");
    if (!is_bare_name(file.as_string())) {
      throw Error(path + ": \"" + terminal_safe(excerpt(file.as_string())) + "\" is not a bare file name");
    }
    out.emplace(tensor, file.as_string());
  }
  return out;
}

}  // namespace

std::vector<SafetensorsFile> open_shards(const std::string& folder, const std::string& index_path) {
  const std::map<std::string, std::string> index = read_index(index_path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  std::vector<SafetensorsFile> shards;
  std::size_t found = 0;
  for (const std::string& name : names) {
    shards.emplace_back(folder + "/" + name);
    for (const TensorInfo& t : shards.back().tensors()) {
      const auto entry = index.find(t.name);
      if (entry == index.end())
        throw Error(shards.back().path() + ": tensor \"" + excerpt(t.name) + "\" is not in the index");
      if (entry->second != name) {
        throw Error(shards.back().path() + ": tensor \"" + excerpt(t.name) + "\" belongs to " + excerpt(entry->second) +
                    " by the index");
      }
      ++found;
    }
  }
  if (found == index.size()) return shards;
  for (const auto& [tensor, file] : index) {
    const std::string path = folder + "/" + file;
    const auto shard =
        std::find_if(shards.begin(), shards.end(), [&](const SafetensorsFile& s) { return s.path() == path; });
    if (shard->find(tensor) == nullptr)
      throw Error(shard->path() + ": has no tensor \"" + excerpt(tensor) + "\", which the index names");
  }
  throw Error(index_path + ": does not agree with the shards");
}

Folder::Folder(const std::string& path) : path_(path) {
  std::error_code ignored;
  if (!exists(path)) throw Error(path + ": no such folder");
  if (!fs::is_directory(path, ignored)) throw Error(path + ": not a folder");
  const std::string config = path + "/config.json";
  if (!exists(config)) throw Error(config + ": missing; not a Hugging Face model folder");
  require_regular(config);
  if (exists(path + "/" + kModelOpt))
    throw Error(path + "/" + kModelOpt +
                ": weights quantized by ModelOpt are not supported; use the model from which they were made");
  json::Value object = json::parse_file(config, kConfigLimits);
  if (object.is_object() && object.as_object().contains(kQuantization)) {
    quantization_ = object.as_object().at(kQuantization);
    object.as_object().erase(kQuantization);
  }
  config_ = parse_config(object, config);

  const std::string single = path + "/model.safetensors";
  const std::string index = path + "/model.safetensors.index.json";
  if (exists(single)) {
    shards_.emplace_back(single);
  } else if (exists(index)) {
    require_regular(index);
    shards_ = open_shards(path, index);
  } else {
    const bool pickled = exists(path + "/pytorch_model.bin") || exists(path + "/pytorch_model.bin.index.json");
    throw Error(path + ": no model.safetensors and no model.safetensors.index.json" +
                (pickled ? "; pytorch_model.bin is not read: save the model with transformers 4.35 or newer" : ""));
  }
  for (const SafetensorsFile& shard : shards_) {
    for (const TensorInfo& t : shard.tensors()) add(t, shard);
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const Entry& a, const Entry& b) { return a.info->name < b.info->name; });
  const auto twice = std::ranges::adjacent_find(tensors_, {}, [](const Entry& e) { return e.info->name; });
  if (twice != tensors_.end())
    throw Error(path + ": " + excerpt(twice->info->name) + " is stored twice, alone and with other experts");
}

void Folder::add(const TensorInfo& tensor, const SafetensorsFile& shard) {
  const std::vector<TensorInfo> parts =
      quantization_.is_null() ? split_experts(tensor, config_) : std::vector<TensorInfo>();
  if (parts.empty()) tensors_.push_back({&tensor, &shard});
  for (const TensorInfo& part : parts) tensors_.push_back({&parts_.emplace_back(part), &shard});
}

bool Folder::looks_like(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) && exists(path + "/config.json");
}

std::optional<std::string> Folder::tokenizer() const {
  const std::string file = path_ + "/tokenizer.json";
  if (!exists(file)) return std::nullopt;
  require_regular(file);
  return read_text_file(file, kMaxTokenizer);
}

std::map<std::string, std::string> tokenizer_texts(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const char* name : kTokenizerTexts) add_text(folder, name, files);
  return files;
}

std::map<std::string, std::string> Folder::texts() const {
  std::map<std::string, std::string> files = tokenizer_texts(path_);
  add_text(path_, kGenerationConfig, files);
  return files;
}

const Folder::Entry* Folder::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const Entry& e, std::string_view n) { return e.info->name < n; });
  return at != tensors_.end() && at->info->name == name ? &*at : nullptr;
}

void Folder::read_rows(const Entry& tensor, std::int64_t first, std::int64_t count, std::span<std::byte> out) const {
  tensor.shard->read_rows(*tensor.info, first, count, out);
}

void Folder::read_rows_f32(const Entry& tensor, std::int64_t first, std::int64_t count, std::span<float> out) const {
  tensor.shard->read_rows_f32(*tensor.info, first, count, out);
}

}  // namespace fp8::hf
