// Lists tensors of files and checkpoints, and reads their rows as doubles.
#include "fp8/convert/tensor_set.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/file_name.h"
#include "fp8/base/text.h"
#include "fp8/dtype/convert.h"
#include "fp8/hf/config.h"
#include "fp8/hf/safetensors.h"
#include "fp8/json/json.h"
#include "fp8/model/record.h"
#include "source.h"
#include "tensor_names.h"

namespace fp8::convert {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "/model.safetensors.index.json";
constexpr const char* kConfig = "/config.json";
constexpr std::string_view kEnding = ".safetensors";

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The safetensors files of a folder, sorted: those that the index names if there is one, else all.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  if (exists(folder + kIndex)) {
    const std::string path = folder + kIndex;
    const json::Value index = json::parse_file(path, {.max_depth = 8, .max_bytes = std::size_t{256} << 20U});
    if (!index.is_object()) throw Error(path + ": not an object");
    for (const auto& [tensor, file] : index.as_object().get_object("weight_map", path)) {
      if (!file.is_string() || !is_bare_name(file.as_string()))
        throw Error(path + ": \"weight_map\" has a value that is not a bare file name");
      files.push_back(folder + "/" + file.as_string());
    }
  } else {
    std::error_code error;
    const fs::directory_iterator end;
    for (fs::directory_iterator at(folder, error); !error && at != end; at.increment(error))
      if (at->path().filename().string().ends_with(kEnding))
        files.push_back(folder + "/" + at->path().filename().string());
    if (error) throw Error(folder + ": " + error.message());
  }
  std::ranges::sort(files);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

template <class T>
void widen(const std::vector<std::byte>& raw, std::span<double> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, raw.data() + i * sizeof value, sizeof value);
    out[i] = static_cast<double>(value);
  }
}

// Elements of a dtype of safetensors.
void to_doubles(const hf::TensorInfo& info, const std::vector<std::byte>& raw, std::span<double> out) {
  const std::string& type = info.dtype;
  if (type == "F64") return widen<double>(raw, out);
  if (type == "F32") return widen<float>(raw, out);
  if (type == "I64") return widen<std::int64_t>(raw, out);
  if (type == "I32") return widen<std::int32_t>(raw, out);
  if (type == "I16") return widen<std::int16_t>(raw, out);
  if (type == "I8") return widen<std::int8_t>(raw, out);
  if (type == "U64") return widen<std::uint64_t>(raw, out);
  if (type == "U32") return widen<std::uint32_t>(raw, out);
  if (type == "U16") return widen<std::uint16_t>(raw, out);
  if (type == "U8" || type == "BOOL") return widen<std::uint8_t>(raw, out);
  std::vector<float> floats(out.size());
  dtype::to_floats(*info.format, raw.data(), floats);
  std::ranges::copy(floats, out.begin());
}

}  // namespace

struct TensorSet::State {
  std::string path;
  std::vector<hf::SafetensorsFile> files;
  std::optional<Source> source;  // checkpoint, or folder of a model with FP8 weights
  std::vector<NamedTensor> tensors;
  std::optional<std::int64_t> head_dim;

  void open(const std::string& argument);
  void add(NamedTensor tensor, TensorNames names);
  void add_experts(const NamedTensor& stacked, const std::string& pattern);
  void finish();
};

std::int64_t NamedTensor::columns() const {
  return shape.empty() ? 1 : checked_product(std::span(shape).subspan(1), name);
}

void TensorSet::State::open(const std::string& argument) {
  if (!is_safetensors(argument)) {
    source.emplace(argument);
    head_dim = source->config().head_dim;
    return;
  }
  if (!is_folder(argument)) {
    files.emplace_back(argument);
    return;
  }
  if (exists(argument + kConfig)) {
    const json::Value config =
        json::parse_file(argument + kConfig, {.max_depth = 64, .max_bytes = std::size_t{16} << 20U});
    if (config.is_object() && config.as_object().contains("quantization_config")) {
      source.emplace(argument);
      head_dim = source->config().head_dim;
      return;
    }
    try {
      head_dim = hf::parse_config(config, argument + kConfig).head_dim;
    } catch (const Error&) {  // a model that cannot be trained here can be compared
    }
  }
  for (const std::string& file : files_in(argument)) files.emplace_back(file);
}

// One tensor for each expert of a stack.
void TensorSet::State::add_experts(const NamedTensor& stacked, const std::string& pattern) {
  if (stacked.shape.size() != 3) throw Error(path + ": " + stacked.name + ": experts need three dimensions");
  NamedTensor expert = stacked;
  expert.shape.erase(expert.shape.begin());
  const std::int64_t size = checked_product(expert.shape, stacked.name);
  for (std::int64_t e = 0; e < stacked.shape[0]; ++e) {
    expert.name = pattern;
    expert.name.replace(pattern.find("{}"), 2, std::to_string(e));
    expert.key = expert.name;
    expert.first_element = e * size;
    tensors.push_back(expert);
  }
}

void TensorSet::State::add(NamedTensor tensor, TensorNames names) {
  tensor.stored = tensor.name;
  tensor.key = key_of(tensor.name);
  const auto other = names == TensorNames::torchtitan ? from_torchtitan(tensor.name) : std::nullopt;
  if (other && other->experts) return add_experts(tensor, other->name);
  if (other) {
    tensor.name = tensor.key = other->name;
    tensor.interleaved = other->query_key;
  }
  tensors.push_back(std::move(tensor));
}

void TensorSet::State::finish() {
  std::ranges::sort(tensors, {}, &NamedTensor::key);
  const auto twice = std::ranges::adjacent_find(tensors, {}, &NamedTensor::key);
  if (twice != tensors.end())
    throw Error(path + ": " + excerpt(twice->stored) + " and " + excerpt(std::next(twice)->stored) +
                ": two tensors of one name");
  // Models with norms of q and k rotate halves in torchtitan too.
  if (std::ranges::any_of(tensors, [](const NamedTensor& t) { return t.key.ends_with(".q_norm.weight"); }))
    for (NamedTensor& t : tensors) t.interleaved = false;
}

TensorSet::TensorSet(const std::string& path, TensorNames names) : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->open(path);
  if (state_->source)
    for (const SourceTensor& t : state_->source->tensors()) {
      NamedTensor tensor;
      tensor.name = t.name, tensor.dtype = t.format_name, tensor.shape = t.shape;
      state_->add(std::move(tensor), names);
    }
  for (std::size_t file = 0; file < state_->files.size(); ++file)
    for (const hf::TensorInfo& info : state_->files[file].tensors()) {
      NamedTensor tensor;
      tensor.name = info.name, tensor.dtype = info.dtype, tensor.shape = info.shape, tensor.file = file;
      state_->add(std::move(tensor), names);
    }
  state_->finish();
}

TensorSet::~TensorSet() = default;
TensorSet::TensorSet(TensorSet&&) noexcept = default;
TensorSet& TensorSet::operator=(TensorSet&&) noexcept = default;

bool TensorSet::is_safetensors(const std::string& path) {
  if (is_folder(path)) return exists(path + kIndex) || (!exists(path + "/manifest.json") && !files_in(path).empty());
  if (path.ends_with(kEnding)) return true;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  File file = File::open_read(path);
  std::array<std::byte, 9> begin{};
  return file.read_some(begin) == begin.size() && begin[8] == std::byte{'{'};  // after the length of the header
}

const std::string& TensorSet::path() const { return state_->path; }
const std::vector<NamedTensor>& TensorSet::tensors() const { return state_->tensors; }
std::optional<std::int64_t> TensorSet::head_dim() const { return state_->head_dim; }

const NamedTensor* TensorSet::find(std::string_view key) const {
  const auto at = std::ranges::lower_bound(state_->tensors, key, {}, &NamedTensor::key);
  return at != state_->tensors.end() && at->key == key ? &*at : nullptr;
}

RowsReader TensorSet::reader(const NamedTensor& tensor) const {
  const std::int64_t columns = tensor.columns();
  if (state_->source) {
    auto rows = std::make_shared<RowReader>(*state_->source, *state_->source->find(tensor.stored), dtype::DType::f32);
    return [rows, columns](std::int64_t first, std::int64_t count, std::span<double> out) {
      std::vector<float> floats(static_cast<std::size_t>(count * columns));
      rows->read(first, first + count, std::as_writable_bytes(std::span(floats)));
      std::ranges::copy(floats, out.begin());
    };
  }
  const hf::SafetensorsFile& file = state_->files[tensor.file];
  const hf::TensorInfo& info = *file.find(tensor.stored);
  return [&file, &info, columns, begin = tensor.first_element](std::int64_t first, std::int64_t count,
                                                               std::span<double> out) {
    std::vector<std::byte> raw(static_cast<std::size_t>(count * columns) * info.element_size);
    file.read(info, static_cast<std::uint64_t>(begin + first * columns) * info.element_size, raw);
    to_doubles(info, raw, out);
  };
}

}  // namespace fp8::convert
