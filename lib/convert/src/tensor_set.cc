// Lists tensors of files and checkpoints, and reads their rows as doubles.
#include "fp8/convert/tensor_set.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/ckpt/run_folder.h"
#include "fp8/dtype/convert.h"
#include "fp8/hf/config.h"
#include "fp8/hf/folder.h"
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

// The safetensors files of a folder without an index, sorted.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  const fs::directory_iterator end;
  for (fs::directory_iterator at(folder, error); !error && at != end; at.increment(error))
    if (at->path().filename().string().ends_with(kEnding))
      files.push_back(folder + "/" + at->path().filename().string());
  if (error) throw Error(folder + ": " + error.message());
  std::ranges::sort(files);
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

// Rows of one part of a fused tensor in each of its groups.
struct Part {
  std::string_view name;
  std::int64_t rows;
};

std::string filled(std::string pattern, std::string_view text) { return pattern.replace(pattern.find("{}"), 2, text); }

Heads heads_of(const hf::ModelConfig& config) {
  return {config.num_attention_heads, config.num_key_value_heads, config.head_dim};
}

// Heads by the metadata of a safetensors file.
std::optional<Heads> heads_of(const hf::SafetensorsFile& file) {
  const auto found = file.metadata().find("attention_heads");
  if (found == file.metadata().end()) return std::nullopt;
  const std::string what = file.path() + ": attention_heads in __metadata__";
  const json::Value value = json::parse(found->second, what, {.max_depth = 4, .max_bytes = 4096});
  if (!value.is_object()) throw Error(what + ": not an object");
  constexpr std::int64_t kMost = 1 << 20;
  const auto count = [&](const char* key) {
    const std::int64_t n = value.as_object().get_int(key, what);
    if (n < 1 || n > kMost) throw Error(what + ": " + key + " is not from 1 to " + std::to_string(kMost));
    return n;
  };
  const Heads heads{count("num_attention_heads"), count("num_key_value_heads"), count("head_dim")};
  if (heads.query % heads.key_value != 0)
    throw Error(what + ": num_key_value_heads does not divide num_attention_heads");
  return heads;
}

}  // namespace

struct TensorSet::State {
  std::string path;
  TensorNames names = TensorNames::huggingface;
  std::vector<hf::SafetensorsFile> files;
  std::optional<Source> source;  // checkpoint, or folder of a model with FP8 weights
  std::vector<NamedTensor> tensors;
  std::optional<Heads> heads;

  void open(const std::string& argument);
  void add(NamedTensor tensor, TensorNames from);
  void add_experts(const NamedTensor& stacked, const Translation& to);
  void add_parts(const NamedTensor& fused, const std::string& pattern, std::int64_t groups,
                 std::span<const Part> parts);
  void add_gate_up(const NamedTensor& fused, const std::string& pattern);
  void add_qkv(const NamedTensor& fused, const std::optional<Heads>& of);
  void split(const std::optional<Heads>& of);
  void finish();
};

std::int64_t NamedTensor::columns() const {
  if (rows() == 0) return 0;  // whatever the other extents are
  return shape.empty() ? 1 : checked_product(std::span(shape).subspan(1), name);
}

std::string NamedTensor::shape_text() const {
  std::string text;
  for (const std::int64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text.empty() ? "scalar" : text;
}

void TensorSet::State::open(const std::string& argument) {
  if (!is_safetensors(argument)) {
    source.emplace(argument);
    heads = heads_of(source->config());
    return;
  }
  if (!is_folder(argument)) {
    files.emplace_back(argument);
    heads = heads_of(files.back());
    return;
  }
  if (exists(argument + kConfig)) {
    const json::Value config =
        json::parse_file(argument + kConfig, {.max_depth = 64, .max_bytes = std::size_t{16} << 20U});
    if (config.is_object() && config.as_object().contains("quantization_config")) {
      source.emplace(argument);
      heads = heads_of(source->config());
      return;
    }
    try {
      heads = heads_of(hf::parse_config(config, argument + kConfig));
    } catch (const Error&) {  // a model that cannot be trained here can be compared
    }
  }
  if (exists(argument + kIndex))
    files = hf::open_shards(argument, argument + kIndex);
  else
    for (const std::string& file : files_in(argument)) files.emplace_back(file);
  for (const hf::SafetensorsFile& file : files)
    if (!heads) heads = heads_of(file);
}

// One tensor for each expert of a stack, or two if it holds pairs of gate and up.
void TensorSet::State::add_experts(const NamedTensor& stacked, const Translation& to) {
  constexpr std::int64_t kMost = 1 << 16;
  const std::string where = path + ": " + excerpt(stacked.stored) + ": ";
  if (stacked.shape.size() != 3) throw Error(where + "experts need three dimensions");
  if (stacked.shape[0] > kMost)
    throw Error(where + std::to_string(stacked.shape[0]) + " experts, at most " + std::to_string(kMost));
  std::vector<std::string_view> parts{""};
  if (to.layout == Layout::pairs) parts = {"gate", "up"};
  NamedTensor part = stacked;
  part.shape.erase(part.shape.begin());
  if (part.shape[0] % std::ssize(parts) != 0)
    throw Error(where + "an odd number of rows is not that of gate and up, of which each has half");
  part.shape[0] /= std::ssize(parts);
  const std::int64_t size = checked_product(part.shape, stacked.name);
  for (std::int64_t e = 0; e < stacked.shape[0]; ++e)
    for (const std::string_view name : parts) {
      part.name = filled(to.name, std::to_string(e));
      if (to.layout == Layout::pairs) part.name = filled(part.name, name);
      part.key = part.name;
      tensors.push_back(part);
      part.first_element += size;
    }
}

void TensorSet::State::add(NamedTensor tensor, TensorNames from) {
  tensor.stored = tensor.name;
  tensor.key = key_of(tensor.name);
  if (const auto other = translate(tensor.name, from)) {
    if (other->layout == Layout::experts || other->layout == Layout::pairs) return add_experts(tensor, *other);
    if (other->layout == Layout::gate_up) return add_gate_up(tensor, other->name);
    if (other->layout == Layout::qkv) {
      tensor.fused = other->name;  // keeps its name until split()
    } else {
      tensor.name = tensor.key = other->name;
      tensor.interleaved = other->layout == Layout::interleaved;
      tensor.padded = other->layout == Layout::vocabulary;
    }
  }
  tensors.push_back(std::move(tensor));
}

// One tensor for each part of a fused one, whose rows are `groups` times those of all parts.
void TensorSet::State::add_parts(const NamedTensor& fused, const std::string& pattern, std::int64_t groups,
                                 std::span<const Part> parts) {
  std::int64_t offset = 0;
  for (const Part& p : parts) {
    NamedTensor part = fused;
    part.name = part.key = filled(pattern, p.name);
    part.shape[0] = groups * p.rows;
    part.runs = {p.rows, fused.shape[0] / std::max<std::int64_t>(1, groups), offset};
    part.fused.clear();
    tensors.push_back(std::move(part));
    offset += p.rows;
  }
}

void TensorSet::State::add_gate_up(const NamedTensor& fused, const std::string& pattern) {
  if (fused.shape.empty() || fused.shape.size() > 2 || fused.shape[0] % 2 != 0)
    throw Error(path + ": " + excerpt(fused.stored) + ": its shape, " + fused.shape_text() +
                ", is not that of gate and up, of which each has half of the rows");
  const std::int64_t half = fused.shape[0] / 2;
  add_parts(fused, pattern, 1, std::array{Part{"gate", half}, Part{"up", half}});
}

void TensorSet::State::add_qkv(const NamedTensor& fused, const std::optional<Heads>& of) {
  const std::string where = path + ": " + excerpt(fused.stored) + ": ";
  if (!of)
    throw Error(where +
                "is split by the number of heads, which neither side has: compare with a checkpoint, a folder " +
                "with config.json, or gradients of fp8-step");
  if (fused.shape.empty() || fused.shape.size() > 2 || fused.shape[0] != of->rows())
    throw Error(where + "its shape is " + fused.shape_text() + ", but " + std::to_string(of->query) + " query and " +
                std::to_string(of->key_value) + " key/value heads of " + std::to_string(of->dim) + " have " +
                std::to_string(of->rows()) + " rows; parts of tensor parallelism must be merged first");
  add_parts(fused, fused.fused, of->key_value,
            std::array{Part{"q", of->query / of->key_value * of->dim}, Part{"k", of->dim}, Part{"v", of->dim}});
}

void TensorSet::State::split(const std::optional<Heads>& of) {
  std::vector<NamedTensor> before;
  std::swap(before, tensors);
  for (NamedTensor& t : before)
    if (t.fused.empty())
      tensors.push_back(std::move(t));
    else
      add_qkv(t, of);
  finish();
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
  state_->path = path, state_->names = names;
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
  if (is_folder(path))
    return exists(path + kIndex) ||
           (!exists(path + "/manifest.json") && ckpt::list_steps(path).empty() && !files_in(path).empty());
  if (path.ends_with(kEnding)) return true;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  File file = File::open_read(path);
  std::array<std::byte, 9> begin{};
  return file.read_some(begin) == begin.size() && begin[8] == std::byte{'{'};  // after the length of the header
}

const std::string& TensorSet::path() const { return state_->path; }
TensorNames TensorSet::names() const { return state_->names; }
bool TensorSet::holds_weights() const { return state_->source || exists(state_->path + kConfig); }
std::optional<std::string> TensorSet::metadata(const std::string& key) const {
  for (const hf::SafetensorsFile& file : state_->files)
    if (const auto found = file.metadata().find(key); found != file.metadata().end()) return found->second;
  return std::nullopt;
}
std::vector<std::string> TensorSet::passed_over() const {
  const ckpt::Checkpoint* const checkpoint = state_->source ? state_->source->checkpoint() : nullptr;
  return checkpoint != nullptr ? checkpoint->passed_over() : std::vector<std::string>();
}
const std::vector<NamedTensor>& TensorSet::tensors() const { return state_->tensors; }
const std::optional<Heads>& TensorSet::heads() const { return state_->heads; }

void split_fused(TensorSet& a, TensorSet& b) {
  const std::optional<Heads> heads = a.heads() ? a.heads() : b.heads();
  a.state_->split(heads);
  b.state_->split(heads);
}

const NamedTensor* TensorSet::find(std::string_view key) const {
  const auto at = std::ranges::lower_bound(state_->tensors, key, {}, &NamedTensor::key);
  return at != state_->tensors.end() && at->key == key ? &*at : nullptr;
}

NamedTensor TensorSet::flat(NamedTensor tensor) const {
  if (!state_->source && tensor.runs.run == 0) tensor.shape = {checked_product(tensor.shape, tensor.name)};
  return tensor;
}

RowsReader TensorSet::reader(const NamedTensor& tensor) const {
  RowsReader stored = stored_reader(tensor);
  if (tensor.runs.run == 0) return stored;
  return [stored = std::move(stored), columns = tensor.columns(), runs = tensor.runs](
             std::int64_t first, std::int64_t count, std::span<double> out) {
    for (std::int64_t row = first; row < first + count;) {
      const std::int64_t at = row % runs.run, n = std::min(runs.run - at, first + count - row);
      stored(row / runs.run * runs.stride + runs.offset + at, n,
             out.subspan(static_cast<std::size_t>((row - first) * columns), static_cast<std::size_t>(n * columns)));
      row += n;
    }
  };
}

// Reads rows of the tensor in the file.
RowsReader TensorSet::stored_reader(const NamedTensor& tensor) const {
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
