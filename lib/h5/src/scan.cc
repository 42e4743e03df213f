// The scan of a plain file, through HDF5. Each object is checked before it is used: the layout of a dataset before its
// dataspace (querying a virtual dataset's dataspace opens other files), the size of an attribute before its value.
#include "scan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "fp8/base/checked.h"
#include "fp8/base/text.h"
#include "fp8/h5/reader.h"
#include "library.h"

namespace fp8::h5 {
namespace {

constexpr std::array<DType, 9> kStored = {DType::f32, DType::bf16, DType::u8,  DType::f64, DType::u16,
                                          DType::u32, DType::u64,  DType::i32, DType::i64};

std::uint64_t little_endian_u64(std::span<const std::byte> bytes) {
  std::uint64_t v = 0;
  for (std::size_t i = 0; i < 8; ++i) v |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  return v;
}

struct TypedLink {
  std::string name;
  H5L_type_t type;
};

struct LinkList {
  std::vector<TypedLink> links;
  bool failed = false;
};

// Called by HDF5, so it must not throw.
herr_t collect_link(hid_t, const char* name, const H5L_info_t* info, void* data) noexcept {
  auto& list = *static_cast<LinkList*>(data);
  try {
    if (list.links.size() >= kMaxObjects) throw Error("too many links");
    list.links.push_back({std::string(name, strnlen(name, kMaxNameBytes + 1)), info->type});
    return 0;
  } catch (const std::exception&) {
    list.failed = true;
    return -1;
  }
}

class Scanner {
 public:
  explicit Scanner(const File& file) : path_(file.path()), file_bytes_(file.size()) {}

  Contents run() {
    Handle access = file_access();
    Handle file(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
    if (!file.ok()) throw Error(path_ + ": damaged: HDF5 cannot open it");
    Handle root(H5Gopen2(file.get(), "/", H5P_DEFAULT), H5Gclose);
    if (!root.ok()) throw Error(path_ + ": damaged: HDF5 cannot read the root group");
    group(root.get(), "", 0);
    finish(out_, path_);
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::string_view name, const std::string& reason) const {
    throw Error(message(path_, name, reason));
  }

  // Counts the object and checks that no other link led to it.
  void enter(hid_t id, std::string_view name) {
    H5O_info_t info;
    if (H5Oget_info2(id, &info, H5O_INFO_BASIC) < 0) fail(name, "damaged: its header cannot be read");
    if (!seen_.insert(info.addr).second) fail(name, "linked more than once");
    if (seen_.size() > kMaxObjects) fail(name, "more than " + std::to_string(kMaxObjects) + " objects in the file");
  }

  void group(hid_t id, const std::string& name, std::size_t depth) {
    enter(id, name);
    H5G_info_t info;
    if (H5Gget_info(id, &info) < 0) fail(name, "damaged: its header cannot be read");
    out_.groups.emplace(name, attributes(id, name));
    LinkList list;
    hsize_t index = 0;
    // The order is native, because for any other HDF5 1.10 first builds a table whose release crashes if a link is
    // damaged.
    if (H5Literate(id, H5_INDEX_NAME, H5_ITER_NATIVE, &index, collect_link, &list) < 0 || list.failed)
      fail(name, "damaged: its links cannot be read");
    for (const TypedLink& link : list.links) {
      if (!valid_name(link.name)) fail(name, "holds a name that is not allowed: " + terminal_safe(link.name));
      member(id, link, name.empty() ? link.name : name + "/" + link.name, depth + 1);
    }
  }

  void member(hid_t parent, const TypedLink& link, const std::string& name, std::size_t depth) {
    if (link.type != H5L_TYPE_HARD) fail(name, "soft and external links are not allowed");
    if (depth > kMaxDepth) fail(name, "groups nest deeper than " + std::to_string(kMaxDepth));
    Handle object(H5Oopen(parent, link.name.c_str(), H5P_DEFAULT), H5Oclose);
    if (!object.ok()) fail(name, "damaged: it cannot be opened");
    switch (H5Iget_type(object.get())) {
      case H5I_GROUP:
        return group(object.get(), name, depth);
      case H5I_DATASET:
        return dataset(object.get(), name);
      default:
        fail(name, "neither a group nor a dataset");
    }
  }

  void dataset(hid_t id, const std::string& name) {
    enter(id, name);
    Handle layout(H5Dget_create_plist(id), H5Pclose);
    if (!layout.ok()) fail(name, "damaged: its layout cannot be read");
    if (H5Pget_layout(layout.get()) != H5D_CONTIGUOUS)
      fail(name, "only contiguous layout is allowed (no chunks, filters or virtual datasets)");
    if (H5Pget_nfilters(layout.get()) != 0) fail(name, "filters are not allowed");
    if (H5Pget_external_count(layout.get()) != 0) fail(name, "external storage is not allowed");
    Entry entry;
    entry.name = name;
    entry.attributes = attributes(id, name);
    entry.dtype = element_type(id, entry);
    entry.shape = shape(id, name);
    const auto elements = checked_product(entry.shape, message(path_, name, "shape"));
    entry.bytes = checked_mul(static_cast<std::uint64_t>(elements), std::uint64_t{dtype::size_of(entry.dtype)},
                              message(path_, name, "size"));
    if (entry.bytes > 0) entry.offset = place(id, entry);
    out_.entries.push_back(std::move(entry));
  }

  std::uint64_t place(hid_t id, const Entry& entry) const {
    if (H5Dget_storage_size(id) < entry.bytes) fail(entry.name, "declares more bytes than it stores");
    const haddr_t offset = H5Dget_offset(id);
    if (offset == HADDR_UNDEF || offset > file_bytes_ || entry.bytes > file_bytes_ - offset)
      fail(entry.name, "its data is outside the file");
    return offset;
  }

  std::vector<std::int64_t> shape(hid_t id, const std::string& name) const {
    Handle space(H5Dget_space(id), H5Sclose);
    const H5S_class_t kind = space.ok() ? H5Sget_simple_extent_type(space.get()) : H5S_NO_CLASS;
    if (kind == H5S_SCALAR) return {};
    if (kind != H5S_SIMPLE) fail(name, "its dataspace is null");
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (rank < 0 || static_cast<std::size_t>(rank) > kMaxRank)
      fail(name, "has more than " + std::to_string(kMaxRank) + " dimensions");
    std::array<hsize_t, kMaxRank> extents{};
    if (H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr) != rank)
      fail(name, "damaged: its shape cannot be read");
    std::vector<std::int64_t> result;
    for (int i = 0; i < rank; ++i)
      result.push_back(
          checked_cast<std::int64_t>(extents[static_cast<std::size_t>(i)], message(path_, name, "extent")));
    return result;
  }

  // The type from attribute `dtype`, which must match the stored type; without the attribute the stored type.
  DType element_type(hid_t id, const Entry& entry) const {
    Handle type(H5Dget_type(id), H5Tclose);
    if (!type.ok() || H5Tcommitted(type.get()) != 0) fail(entry.name, "its type is not allowed");
    const DType* stored = std::find_if(kStored.begin(), kStored.end(), [&](DType t) { return same(type.get(), t); });
    if (stored == kStored.end()) fail(entry.name, "its type is not allowed");
    return named_dtype(*stored, entry, path_);
  }

  static bool same(hid_t type, DType t) {
    Handle expected = storage_type(t);
    return expected.ok() && H5Tequal(type, expected.get()) > 0;
  }

  Attributes attributes(hid_t id, const std::string& name) const {
    H5O_info_t info;
    if (H5Oget_info2(id, &info, H5O_INFO_NUM_ATTRS) < 0) fail(name, "damaged: its attributes cannot be read");
    if (info.num_attrs > kMaxAttributes) fail(name, "has more than " + std::to_string(kMaxAttributes) + " attributes");
    Attributes result;
    for (hsize_t i = 0; i < info.num_attrs; ++i) {
      Handle attribute(H5Aopen_by_idx(id, ".", H5_INDEX_NAME, H5_ITER_INC, i, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
      if (!attribute.ok()) fail(name, "damaged: its attributes cannot be read");
      std::array<char, kMaxNameBytes + 1> text{};
      const ssize_t length = H5Aget_name(attribute.get(), text.size(), text.data());
      const std::string key = text.data();
      if (length < 0 || key.size() != static_cast<std::size_t>(length) || !valid_name(key))
        fail(name, "an attribute's name is not allowed");
      if (variable_text(attribute.get())) continue;
      if (!result.emplace(key, value(attribute.get(), name, key)).second)
        fail(name, "attribute " + key + " is there twice");
    }
    return result;
  }

  AttributeValue value(hid_t id, const std::string& object, const std::string& key) const {
    const auto refuse = [&](const std::string& reason) { fail(object, "attribute " + key + ": " + reason); };
    if (H5Aget_storage_size(id) > kMaxAttributeBytes)
      refuse("longer than " + std::to_string(kMaxAttributeBytes) + " bytes");
    Handle type(H5Aget_type(id), H5Tclose);
    Handle space(H5Aget_space(id), H5Sclose);
    if (!type.ok() || !space.ok() || H5Tcommitted(type.get()) != 0) refuse("its type is not allowed");
    const H5S_class_t kind = H5Sget_simple_extent_type(space.get());
    const bool vector = kind == H5S_SIMPLE && H5Sget_simple_extent_ndims(space.get()) == 1;
    const hssize_t count = H5Sget_simple_extent_npoints(space.get());
    if ((kind != H5S_SCALAR && !vector) || count < 0) refuse("its shape is not allowed");
    switch (H5Tget_class(type.get())) {
      case H5T_STRING:
        if (vector) refuse("arrays of text are not allowed");
        return text_value(id, type.get(), object, key);
      case H5T_INTEGER:
        return integer_value(id, type.get(), vector ? std::optional(static_cast<std::size_t>(count)) : std::nullopt,
                             object, key);
      case H5T_FLOAT: {
        double real = 0;
        const bool known = same(type.get(), DType::f32) || same(type.get(), DType::f64);
        if (vector || !known || H5Aread(id, H5T_NATIVE_DOUBLE, &real) < 0) refuse("its type is not allowed");
        return real;
      }
      default:
        refuse("its type is not allowed");
    }
    return {};
  }

  // Variable-length text, as h5py writes it, is left out: HDF5 1.10 copies as many bytes as the heap object claims into
  // a buffer sized by another field.
  static bool variable_text(hid_t id) {
    Handle type(H5Aget_type(id), H5Tclose);
    return type.ok() && H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) > 0;
  }

  AttributeValue text_value(hid_t id, hid_t type, const std::string& object, const std::string& key) const {
    const std::size_t size = H5Tget_size(type);
    if (size == 0 || size > kMaxAttributeBytes) fail(object, "attribute " + key + ": its size is not allowed");
    std::string text(size, '\0');
    if (H5Aread(id, type, text.data()) < 0) fail(object, "damaged: attribute " + key + " cannot be read");
    text.resize(strnlen(text.data(), size));
    if (H5Tget_strpad(type) == H5T_STR_SPACEPAD) text.resize(text.find_last_not_of(' ') + 1);
    if (!valid_utf8(text)) fail(object, "attribute " + key + " is not UTF-8");
    return text;
  }

  // No `count` means a scalar.
  AttributeValue integer_value(hid_t id, hid_t type, std::optional<std::size_t> count, const std::string& object,
                               const std::string& key) const {
    const std::array<hid_t, 7> allowed = {H5T_STD_I64LE, H5T_STD_I32LE, H5T_STD_I16LE, H5T_STD_I8LE,
                                          H5T_STD_U32LE, H5T_STD_U16LE, H5T_STD_U8LE};
    const bool known = std::any_of(allowed.begin(), allowed.end(), [&](hid_t t) { return H5Tequal(type, t) > 0; });
    if (!known || count.value_or(1) > kMaxAttributeBytes)
      fail(object, "attribute " + key + ": its type is not allowed");
    std::vector<std::int64_t> values(count.value_or(1));
    if (!values.empty() && H5Aread(id, H5T_NATIVE_INT64, values.data()) < 0)
      fail(object, "damaged: attribute " + key + " cannot be read");
    if (!count) return values.front();
    return values;
  }

  std::string path_;
  std::uint64_t file_bytes_;
  std::set<haddr_t> seen_;
  Contents out_;
};

}  // namespace

File open_regular(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw Error(path + ": not a regular file");
  return File::open_read(path);
}

void check_superblock(const File& file, bool user_block) {
  constexpr std::array<unsigned char, 8> kSignature = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  constexpr std::size_t kBytes = 48;  // signature, version and sizes, base, extension, end, root
  const std::uint64_t size = file.size();
  std::array<std::byte, kBytes> block{};
  const auto signed_at = [&](std::uint64_t offset) {
    if (size < offset + kBytes) return false;
    file.pread_exact(block, offset);
    return std::memcmp(block.data(), kSignature.data(), kSignature.size()) == 0;
  };
  if (!(!user_block && signed_at(0)) && !signed_at(kUserBlockBytes)) throw Error(file.path() + ": not an HDF5 file");
  if (!user_block) return;
  const auto version = std::to_integer<int>(block[8]);
  const std::span<const std::byte> bytes(block);
  const bool sizes = block[9] == std::byte{8} && block[10] == std::byte{8};
  if ((version != 2 && version != 3) || !sizes)
    throw Error(file.path() + ": its HDF5 superblock is not of version 2 or 3");
  if (little_endian_u64(bytes.subspan(12)) != kUserBlockBytes || little_endian_u64(bytes.subspan(20)) != HADDR_UNDEF ||
      little_endian_u64(bytes.subspan(28)) != size)
    throw Error(file.path() + ": damaged: its HDF5 superblock does not fit the file");
}

DType named_dtype(DType stored, const Entry& entry, const std::string& path) {
  const auto attribute = entry.attributes.find("dtype");
  if (attribute == entry.attributes.end()) return stored;
  const auto* text = std::get_if<std::string>(&attribute->second);
  const auto named = text != nullptr ? dtype::parse_dtype(*text) : std::nullopt;
  if (!named) throw Error(message(path, entry.name, "attribute dtype names no known type"));
  const bool bits = (stored == DType::u16 || stored == DType::u32 || stored == DType::u64) &&
                    dtype::size_of(stored) == dtype::size_of(*named);  // floats kept as their bits
  const bool codes = is_fp8(*named) || *named == DType::e8m0;
  if (!bits && stored != (codes ? DType::u8 : *named))
    throw Error(message(path, entry.name, "attribute dtype does not fit the stored type"));
  return *named;
}

void finish(Contents& contents, const std::string& path) {
  auto& entries = contents.entries;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
  std::uint64_t end = 0;
  for (const Entry& e : entries) {
    if (e.bytes == 0) continue;
    if (e.offset < end) throw Error(message(path, e.name, "shares bytes with another dataset"));
    end = e.offset + e.bytes;
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
}

Contents scan(const File& file) {
  const Lock lock = enter_library();
  return Scanner(file).run();
}

}  // namespace fp8::h5
