// Lists the objects of a file through HDF5; data are read at the offsets that HDF5 states.
#include "plain_file.h"

#include <algorithm>
#include <array>
#include <utility>

#include "fp8/base/error.h"
#include "library.h"

namespace fp8::test {
namespace {

using dtype::DType;
using h5::Handle;

struct Object {
  std::string name;
  H5O_type_t type;
};

// Throws if HDF5 reports an error.
void must(bool succeeded, const std::string& name) {
  if (!succeeded) throw Error(name + ": HDF5 cannot read it");
}

herr_t collect(hid_t, const char* name, const H5O_info_t* info, void* objects) noexcept {
  static_cast<std::vector<Object>*>(objects)->push_back({std::string(name) == "." ? "" : name, info->type});
  return 0;
}

h5::AttributeValue value_of(hid_t id, hid_t type, const std::string& name) {
  const Handle space(H5Aget_space(id), H5Sclose);
  if (H5Tget_class(type) == H5T_STRING) {
    std::string text(H5Tget_size(type), '\0');
    must(H5Aread(id, type, text.data()) >= 0, name);
    return text.substr(0, text.find('\0'));
  }
  if (H5Tget_class(type) == H5T_FLOAT) {
    double real = 0;
    must(H5Aread(id, H5T_NATIVE_DOUBLE, &real) >= 0, name);
    return real;
  }
  std::vector<std::int64_t> integers(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.get())));
  must(integers.empty() || H5Aread(id, H5T_NATIVE_INT64, integers.data()) >= 0, name);
  if (H5Sget_simple_extent_type(space.get()) == H5S_SCALAR) return integers.at(0);
  return integers;
}

h5::Attributes attributes_of(hid_t id) {
  H5O_info_t info;
  must(H5Oget_info2(id, &info, H5O_INFO_NUM_ATTRS) >= 0, "attributes");
  h5::Attributes all;
  for (hsize_t i = 0; i < info.num_attrs; ++i) {
    const Handle attribute(H5Aopen_by_idx(id, ".", H5_INDEX_NAME, H5_ITER_INC, i, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    const Handle type(H5Aget_type(attribute.get()), H5Tclose);
    std::array<char, h5::kMaxNameBytes + 1> name{};
    must(H5Aget_name(attribute.get(), name.size(), name.data()) >= 0, "attributes");
    if (H5Tis_variable_str(type.get()) <= 0)
      all.emplace(name.data(), value_of(attribute.get(), type.get(), name.data()));
  }
  return all;
}

// From the attribute `dtype`, or else the stored type.
DType type_of(hid_t id, const h5::Entry& entry) {
  if (const auto named = dtype::parse_dtype(h5::text_or_empty(entry.attributes, "dtype"))) return *named;
  const Handle type(H5Dget_type(id), H5Tclose);
  for (const DType t :
       {DType::f32, DType::bf16, DType::u8, DType::f64, DType::u16, DType::u32, DType::u64, DType::i32, DType::i64}) {
    const Handle known = h5::storage_type(t);
    if (H5Tequal(type.get(), known.get()) > 0) return t;
  }
  throw Error(entry.name + ": its type is not known");
}

h5::Entry entry_of(hid_t id, const std::string& name) {
  h5::Entry entry;
  entry.name = name;
  entry.attributes = attributes_of(id);
  entry.dtype = type_of(id, entry);
  const Handle space(H5Dget_space(id), H5Sclose);
  std::array<hsize_t, H5S_MAX_RANK> extents{};
  const int rank = H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
  must(rank >= 0, name);
  entry.shape.assign(extents.begin(), extents.begin() + rank);
  entry.bytes = static_cast<std::uint64_t>(H5Sget_simple_extent_npoints(space.get())) * dtype::size_of(entry.dtype);
  if (entry.bytes > 0) entry.offset = H5Dget_offset(id);
  must(entry.offset != HADDR_UNDEF, name);
  return entry;
}

}  // namespace

PlainFile::PlainFile(const std::string& path) : file_(File::open_read(path)) {
  const h5::Lock lock = h5::enter_library();
  const Handle access = h5::file_access(), file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  must(file.ok(), path);
  std::vector<Object> objects;
  must(H5Ovisit2(file.get(), H5_INDEX_NAME, H5_ITER_INC, collect, &objects, H5O_INFO_BASIC) >= 0, path);
  for (const auto& [name, type] : objects) {
    const Handle object(H5Oopen(file.get(), name.empty() ? "/" : name.c_str(), H5P_DEFAULT), H5Oclose);
    must(object.ok(), name);
    if (type == H5O_TYPE_DATASET)
      entries_.push_back(entry_of(object.get(), name));
    else
      groups_.emplace(name, attributes_of(object.get()));
  }
  std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
}

const h5::Entry* PlainFile::find(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

const h5::Entry& PlainFile::at(std::string_view name) const {
  if (const h5::Entry* entry = find(name)) return *entry;
  throw Error(file_.path() + ": " + std::string(name) + ": there is no such dataset");
}

std::vector<std::string> PlainFile::groups() const {
  std::vector<std::string> names;
  for (const auto& [name, attributes] : groups_) names.push_back(name);
  return names;
}

std::size_t PlainFile::elements(std::string_view name, std::size_t bytes) const {
  const h5::Entry& entry = at(name);
  if (dtype::size_of(entry.dtype) != bytes) throw Error(entry.name + ": its elements have another size");
  return entry.bytes / bytes;
}

void PlainFile::read(std::string_view name, std::span<std::byte> out) const {
  if (!out.empty()) file_.pread_exact(out, at(name).offset);
}

}  // namespace fp8::test
