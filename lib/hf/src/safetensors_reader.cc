// Opening a safetensors file: every rule of the format is checked before any size in it is used.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>
#include <utility>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/dtype/convert.h"
#include "fp8/hf/safetensors.h"
#include "fp8/json/json.h"
#include "safetensors_dtypes.h"

namespace fp8::hf {
namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kConvertPiece = std::size_t{1} << 20U;  // elements that are converted at a time

std::uint64_t offset_of(const json::Value& v, const std::string& where) {
  if (!v.is_int() || v.as_double() < 0) throw Error(where + ": data_offsets must be two whole numbers");
  return v.as_uint();
}

TensorInfo parse_entry(const std::string& path, const std::string& name, const json::Value& value) {
  const std::string where = path + ": tensor \"" + excerpt(name) + "\"";
  if (!value.is_object()) throw Error(where + ": its header entry is not an object");
  const json::Object& entry = value.as_object();
  TensorInfo t;
  t.name = name;
  t.dtype = entry.get_string("dtype", where);
  const StoredType* type = find_stored_type(t.dtype);
  if (type == nullptr) throw Error(where + ": dtype \"" + excerpt(t.dtype) + "\" is not supported");
  t.format = type->format;
  t.element_size = type->bytes;
  for (const json::Value& extent : entry.get_array("shape", where)) {
    if (!extent.is_int() || extent.as_double() < 0) throw Error(where + ": shape must be whole numbers");
    t.shape.push_back(checked_cast<std::int64_t>(extent.as_uint(), where + ": shape"));
  }
  const json::Array& offsets = entry.get_array("data_offsets", where);
  if (offsets.size() != 2) throw Error(where + ": data_offsets must be two whole numbers");
  t.begin = offset_of(offsets[0], where);
  t.end = offset_of(offsets[1], where);
  if (t.end < t.begin) throw Error(where + ": data_offsets end before they begin");
  const std::int64_t elements = checked_product(t.shape, where + ": shape");
  // The number of bits must not overflow either, as in the reference implementation.
  const std::int64_t bits = checked_mul(elements, static_cast<std::int64_t>(t.element_size) * 8, where + ": shape");
  if (static_cast<std::uint64_t>(bits / 8) != t.end - t.begin) {
    throw Error(where + ": shape and dtype make " + std::to_string(bits / 8) + " bytes, data_offsets give " +
                std::to_string(t.end - t.begin));
  }
  return t;
}

std::map<std::string, std::string> parse_metadata(const std::string& path, const json::Value& value) {
  if (!value.is_object()) throw Error(path + ": __metadata__ is not an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.as_object()) {
    if (!text.is_string()) throw Error(path + ": __metadata__ must map text to text");
    metadata.emplace(key, text.as_string());
  }
  return metadata;
}

std::string read_header(const File& file, std::uint64_t file_size) {
  const std::string& path = file.path();
  if (file_size < kLengthBytes) throw Error(path + ": not a safetensors file: shorter than 8 bytes");
  std::array<std::byte, kLengthBytes> raw{};
  file.pread_exact(raw, 0);
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = (length << 8U) | std::to_integer<std::uint64_t>(raw.at(i));
  if (length > kMaxHeader) {
    throw Error(path + ": not a safetensors file: header of " + std::to_string(length) + " bytes, at most 100000000");
  }
  if (length > file_size - kLengthBytes) throw Error(path + ": header reaches past the end of the file");
  std::string header(static_cast<std::size_t>(length), '\0');
  file.pread_exact(std::as_writable_bytes(std::span(header)), kLengthBytes);
  if (!valid_utf8(header)) throw Error(path + ": header is not UTF-8");
  if (!header.starts_with('{')) throw Error(path + ": header does not begin with '{'");
  return header;
}

// Sorts by offset and checks that the tensors cover the data without gaps or overlaps.
void check_layout(const std::string& path, std::vector<TensorInfo>& tensors, std::uint64_t data_size) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t at = 0;
  for (const TensorInfo& t : tensors) {
    const char* fault = t.begin > at ? "gap before tensor \"" : t.begin < at ? "overlap at tensor \"" : nullptr;
    if (fault != nullptr) throw Error(path + ": data_offsets: " + fault + t.name + "\"");
    at = t.end;
  }
  if (at != data_size) {
    throw Error(path + ": tensors take " + std::to_string(at) + " bytes, the file has " + std::to_string(data_size) +
                " after its header");
  }
}

// Elements of one row; throws if the rows are out of range.
std::int64_t row_elements(const std::string& where, const TensorInfo& t, std::int64_t first, std::int64_t count) {
  const std::int64_t rows = t.shape.empty() ? 1 : t.shape.front();
  if (first < 0 || count < 0 || first > rows || count > rows - first)
    throw Error(where + " has " + std::to_string(rows) + " rows: rows out of range");
  return rows == 0 ? 0 : t.elements() / rows;
}

}  // namespace

std::int64_t TensorInfo::elements() const { return checked_product(shape, name); }

struct SafetensorsFile::State {
  File file;
  std::uint64_t data_begin = 0;
  std::map<std::string, std::string> metadata;
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::size_t, std::less<>> by_name;
};

SafetensorsFile::SafetensorsFile(const std::string& path) : state_(std::make_unique<State>()) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  if (kind != std::filesystem::file_type::regular && kind != std::filesystem::file_type::not_found) {
    throw Error(path + ": not a regular file");
  }
  state_->file = File::open_read(path);
  const std::uint64_t size = state_->file.size();
  const std::string header = read_header(state_->file, size);
  state_->data_begin = kLengthBytes + header.size();
  const json::Value parsed = json::parse(header, path + ": header", {.max_depth = 8, .max_bytes = kMaxHeader});
  for (const auto& [name, value] : parsed.as_object()) {
    if (name == "__metadata__") {
      state_->metadata = parse_metadata(path, value);
    } else {
      state_->tensors.push_back(parse_entry(path, name, value));
    }
  }
  check_layout(path, state_->tensors, size - state_->data_begin);
  for (std::size_t i = 0; i < state_->tensors.size(); ++i) state_->by_name.emplace(state_->tensors[i].name, i);
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::string& SafetensorsFile::path() const { return state_->file.path(); }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return state_->metadata; }
const std::vector<TensorInfo>& SafetensorsFile::tensors() const { return state_->tensors; }

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = state_->by_name.find(name);
  return found == state_->by_name.end() ? nullptr : &state_->tensors[found->second];
}

void SafetensorsFile::read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const {
  const std::uint64_t size = tensor.end - tensor.begin;
  if (offset > size || out.size() > size - offset) {
    throw Error(path() + ": tensor \"" + excerpt(tensor.name) + "\": read past its end");
  }
  state_->file.pread_exact(out, state_->data_begin + tensor.begin + offset);
}

void SafetensorsFile::read_rows(const TensorInfo& tensor, std::int64_t first, std::int64_t count,
                                std::span<std::byte> out) const {
  const std::string where = path() + ": tensor \"" + excerpt(tensor.name) + "\"";
  const auto row = static_cast<std::uint64_t>(row_elements(where, tensor, first, count)) * tensor.element_size;
  if (out.size() != row * static_cast<std::uint64_t>(count)) throw Error(where + ": buffer of the wrong size");
  read(tensor, row * static_cast<std::uint64_t>(first), out);
}

void SafetensorsFile::read_rows_f32(const TensorInfo& tensor, std::int64_t first, std::int64_t count,
                                    std::span<float> out) const {
  using dtype::DType;
  const std::string where = path() + ": tensor \"" + excerpt(tensor.name) + "\"";
  const auto format = tensor.format;
  if (format != DType::f32 && format != DType::bf16 && format != DType::f16) {
    throw Error(where + ": dtype " + tensor.dtype + " cannot be read as floats (F32, BF16 and F16 can)");
  }
  const std::int64_t row = row_elements(where, tensor, first, count);
  if (std::cmp_not_equal(out.size(), row * count)) throw Error(where + ": buffer of the wrong size");
  const std::size_t width = tensor.element_size;
  std::uint64_t offset = static_cast<std::uint64_t>(row * first) * width;
  std::vector<std::byte> raw(std::min(out.size(), kConvertPiece) * width);
  while (!out.empty()) {
    const std::size_t n = std::min(out.size(), kConvertPiece);
    const std::span<std::byte> piece = std::span(raw).first(n * width);
    read(tensor, offset, piece);
    dtype::to_floats(*format, piece.data(), out.first(n));
    offset += piece.size();
    out = out.subspan(n);
  }
}

}  // namespace fp8::hf
