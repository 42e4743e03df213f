// Writing a safetensors file. All sizes are known before the first data byte, so nothing is buffered.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/hf/safetensors.h"
#include "fp8/json/json.h"
#include "safetensors_dtypes.h"

namespace fp8::hf {
namespace {

constexpr std::uint64_t kWriteBack = std::uint64_t{16} << 20U;

std::uint64_t bytes_of(const TensorSpec& t) {
  const std::int64_t elements = checked_product(t.shape, t.name);
  return static_cast<std::uint64_t>(checked_mul(elements, static_cast<std::int64_t>(dtype::size_of(t.dtype)), t.name));
}

// A tensor's place in the data.
struct Place {
  std::uint64_t begin = 0, end = 0;
  bool written = false;
};

using Metadata = std::map<std::string, std::string>;

std::string make_header(const std::vector<TensorSpec>& order, const std::map<std::string, Place, std::less<>>& places,
                        const Metadata& metadata) {
  json::Object header;
  json::Object texts;
  texts.set("format", "pt");
  for (const auto& [key, text] : metadata) texts.set(key, text);
  header.set("__metadata__", std::move(texts));
  for (const TensorSpec& t : order) {
    const Place& place = places.at(t.name);
    header.set(t.name, json::object({{"dtype", safetensors_dtype(t.dtype)},
                                     {"shape", json::Array(t.shape.begin(), t.shape.end())},
                                     {"data_offsets", json::Array{place.begin, place.end}}}));
  }
  std::string text = json::dump(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

std::string_view safetensors_dtype(dtype::DType type) {
  for (const StoredType& t : kStoredTypes) {
    if (t.format == type) return t.name;
  }
  throw Error("dtype " + std::string(dtype::name_of(type)) + " has no safetensors name");
}

struct SafetensorsWriter::State {
  File file;
  std::map<std::string, Place, std::less<>> places;
  std::uint64_t data = 0;           // offset of the data in the file
  std::string current;              // name of the tensor that is being written; empty before the first
  std::uint64_t at = 0, until = 0;  // its next byte and its end, from the start of the data
  std::uint64_t started = 0;        // writing of the tensor's bytes before this one to the disk has begun

  // Takes the places of the tensors and returns the header.
  std::string arrange(const std::string& path, std::vector<TensorSpec> tensors, const Metadata& metadata);
  void write_header(const std::string& header);
  void end_current() const {
    if (at != until)
      throw Error(file.path() + ": " + current + ": " + std::to_string(until - at) + " bytes of data are missing");
  }
};

std::string SafetensorsWriter::State::arrange(const std::string& path, std::vector<TensorSpec> tensors,
                                              const Metadata& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const std::size_t x = dtype::size_of(a.dtype);
    const std::size_t y = dtype::size_of(b.dtype);
    return x != y ? x > y : a.name < b.name;
  });
  std::uint64_t next = 0;
  for (const TensorSpec& t : tensors) {
    const std::uint64_t end = checked_add(next, bytes_of(t), t.name);
    if (t.name == "__metadata__" || !places.try_emplace(t.name, Place{next, end, false}).second)
      throw Error(path + ": tensor name \"" + t.name + "\" is used twice");
    next = end;
  }
  return make_header(tensors, places, metadata);
}

void SafetensorsWriter::State::write_header(const std::string& header) {
  std::array<std::byte, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i) length.at(i) = static_cast<std::byte>(header.size() >> (8 * i));
  file.write_all(length);
  file.write_all(header);
  data = length.size() + header.size();
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors)
    : state_(std::make_unique<State>()) {
  const std::string header = state_->arrange(path, std::move(tensors), {});
  state_->file = File::create_exclusive(path);
  state_->write_header(header);
}

SafetensorsWriter::SafetensorsWriter(File file, std::vector<TensorSpec> tensors, const Metadata& metadata)
    : state_(std::make_unique<State>()) {
  const std::string header = state_->arrange(file.path(), std::move(tensors), metadata);
  state_->file = std::move(file);
  state_->write_header(header);
}

SafetensorsWriter::~SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;

void SafetensorsWriter::begin(std::string_view name) {
  state_->end_current();
  const auto found = state_->places.find(name);
  if (found == state_->places.end() || found->second.written)
    throw Error(state_->file.path() + ": tensor \"" + std::string(name) + "\" is not in the header or written before");
  found->second.written = true;
  state_->current = name;
  state_->at = state_->started = found->second.begin;
  state_->until = found->second.end;
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > state_->until - state_->at)
    throw Error(state_->file.path() + ": " + state_->current + ": more data than the header states");
  state_->file.pwrite_all(bytes, state_->data + state_->at);
  state_->at += bytes.size();
  if (state_->at - state_->started < kWriteBack) return;
  state_->file.start_sync(state_->data + state_->started, state_->data + state_->at);
  state_->started = state_->at;
}

void SafetensorsWriter::finish() {
  state_->end_current();
  for (const auto& [name, place] : state_->places)
    if (!place.written && place.begin != place.end) throw Error(state_->file.path() + ": " + name + ": not written");
  state_->file.sync();
  state_->file.close();
}

}  // namespace fp8::hf
