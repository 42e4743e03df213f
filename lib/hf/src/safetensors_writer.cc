// Writing a safetensors file front to back. All sizes are known before the first data byte, so nothing is buffered.
#include <algorithm>
#include <array>
#include <set>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/hf/safetensors.h"
#include "fp8/json/json.h"
#include "safetensors_dtypes.h"

namespace fp8::hf {
namespace {

std::uint64_t bytes_of(const TensorSpec& t) {
  const std::int64_t elements = checked_product(t.shape, t.name);
  return static_cast<std::uint64_t>(checked_mul(elements, static_cast<std::int64_t>(dtype::size_of(t.dtype)), t.name));
}

std::string make_header(const std::vector<TensorSpec>& order) {
  json::Object header;
  header.set("__metadata__", json::object({{"format", "pt"}}));
  std::uint64_t at = 0;
  for (const TensorSpec& t : order) {
    const std::uint64_t end = checked_add(at, bytes_of(t), t.name);
    header.set(t.name, json::object({{"dtype", safetensors_dtype(t.dtype)},
                                     {"shape", json::Array(t.shape.begin(), t.shape.end())},
                                     {"data_offsets", json::Array{at, end}}}));
    at = end;
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
  std::vector<TensorSpec> order;
  std::uint64_t expected = 0;
  std::uint64_t written = 0;
};

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors)
    : state_(std::make_unique<State>()) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const std::size_t x = dtype::size_of(a.dtype);
    const std::size_t y = dtype::size_of(b.dtype);
    return x != y ? x > y : a.name < b.name;
  });
  std::set<std::string_view> names = {"__metadata__"};
  for (const TensorSpec& t : tensors) {
    if (!names.insert(t.name).second) throw Error(path + ": tensor name \"" + t.name + "\" is used twice");
    state_->expected = checked_add(state_->expected, bytes_of(t), t.name);
  }
  const std::string header = make_header(tensors);
  state_->order = std::move(tensors);
  state_->file = File::create_exclusive(path);
  std::array<std::byte, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i) length.at(i) = static_cast<std::byte>(header.size() >> (8 * i));
  state_->file.write_all(length);
  state_->file.write_all(header);
}

SafetensorsWriter::~SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;

const std::vector<TensorSpec>& SafetensorsWriter::order() const { return state_->order; }

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > state_->expected - state_->written) {
    throw Error(state_->file.path() + ": more data than the header states");
  }
  state_->file.write_all(bytes);
  state_->written += bytes.size();
}

void SafetensorsWriter::finish() {
  if (state_->written != state_->expected) {
    throw Error(state_->file.path() + ": " + std::to_string(state_->written) +
                " bytes of data written, the header states " + std::to_string(state_->expected));
  }
  state_->file.sync();
  state_->file.close();
}

}  // namespace fp8::hf
