// HDF5 allocates and describes datasets; their bytes are written through a separate descriptor. Storage is allocated
// when a dataset is created and never filled, so HDF5 does not write it; its own writes are metadata, which an Image
// collects and which are written to the file at the end. Dataset bytes and metadata are digested before they are
// written, and both digests are compared with the file when it is read back; the digest of the whole file is computed
// in the same pass.
#include "fp8/h5/writer.h"

#include <fcntl.h>

#include <algorithm>
#include <set>

#include "digests.h"
#include "fp8/base/checked.h"
#include "fp8/base/digest.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/h5/reader.h"
#include "fp8/h5/user_block.h"
#include "image.h"
#include "library.h"

namespace fp8::h5 {

struct Writer::State {
  std::string path;
  std::string magic;
  File raw;
  PieceRunner run;
  Image image;  // metadata written by HDF5
  Handle h5;    // HDF5's file handle, on the image
  bool failed = false;
  std::set<std::string, std::less<>> groups{""};
  // The dataset being written.
  Handle dataset;
  std::string name;
  DType dtype = DType::u8;
  Values values = Values::any;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t written = 0;
  Digester digester;
  std::uint64_t begun = 0;  // write-back was started for the bytes before this offset
  // Parts of the file, for the check after reading back.
  std::vector<Part> parts;
  std::string between;
  std::vector<std::string> invalid;
  bool synced = false;

  // The space of a failed file is freed at once.
  ~State() {
    if (!failed) return;
    try {
      if (raw.is_open()) raw.truncate(0);
    } catch (const Error&) {
      return;  // the file is already reported as failed
    }
  }

  [[noreturn]] void fail(std::string_view object, const std::string& reason) {
    failed = true;
    throw Error(message(path, object, reason));
  }
  // Checks a result of HDF5: negative is an error.
  template <class T>
  T check(T result, std::string_view object, const char* doing) {
    if (result < 0) fail(object, std::string("HDF5 cannot ") + doing);
    return result;
  }
  Handle own(hid_t id, Handle::Close close, std::string_view object, const char* doing) {
    return {check(id, object, doing), close};
  }
  void usable() {
    if (failed) throw Error(path + ": not written after an earlier error");
    if (!h5.ok()) throw Error(path + ": already finished");
  }

  void start_writing(std::uint64_t end);
  std::string write_image();
  std::string seal();
  void set_attribute(hid_t object, std::string_view object_name, const std::string& key, const AttributeValue& value);
  void ensure_group(std::string_view group);
  void ensure_parents(const std::string& dataset_name);
};

namespace {

// Bytes that are written at a time: a thread of the lowest priority may take a second for 1 MiB.
constexpr std::size_t kWritePiece = std::size_t{1} << 18;
constexpr std::uint64_t kWriteBack = std::uint64_t{8} << 20;  // the disk writes these while the next are computed
constexpr std::uint64_t kPage = 4096;

Handle text_type(std::string_view text) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  const bool set = type.ok() && H5Tset_size(type.get(), std::max<std::size_t>(text.size(), 1)) >= 0 &&
                   H5Tset_strpad(type.get(), H5T_STR_NULLPAD) >= 0 &&
                   H5Tset_cset(type.get(), ascii ? H5T_CSET_ASCII : H5T_CSET_UTF8) >= 0;
  return set ? std::move(type) : Handle();
}

// File type, memory type, shape and bytes of an attribute.
struct RawAttribute {
  Handle file_type;
  Handle space;
  hid_t memory_type = -1;
  const void* data = nullptr;
  std::size_t bytes = 0;
};

RawAttribute raw_attribute(const AttributeValue& value) {
  RawAttribute raw;
  raw.space = Handle(H5Screate(H5S_SCALAR), H5Sclose);
  if (const auto* text = std::get_if<std::string>(&value)) {
    raw.file_type = text_type(*text);
    raw.memory_type = raw.file_type.get();
    raw.data = text->c_str();
    raw.bytes = text->size();
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    raw.file_type = storage_type(DType::i64);
    raw.memory_type = H5T_NATIVE_INT64;
    raw.data = integer;
  } else if (const auto* real = std::get_if<double>(&value)) {
    raw.file_type = storage_type(DType::f64);
    raw.memory_type = H5T_NATIVE_DOUBLE;
    raw.data = real;
  } else {
    const auto& list = std::get<std::vector<std::int64_t>>(value);
    const hsize_t count = list.size();
    raw.file_type = storage_type(DType::i64);
    raw.space = Handle(H5Screate_simple(1, &count, nullptr), H5Sclose);
    raw.memory_type = H5T_NATIVE_INT64;
    raw.data = list.empty() ? static_cast<const void*>(&kMaxRank) : list.data();
    raw.bytes = list.size() * sizeof(std::int64_t);
  }
  return raw;
}

}  // namespace

// Starts asynchronous write-back of the bytes before `end` once they are kWriteBack, so that the final sync has less to
// write. Whole pages only: a page that changes again would be written twice. Best effort.
void Writer::State::start_writing(std::uint64_t end) {
  end -= end % kPage;
  if (end < begun + kWriteBack) return;
  (void)::sync_file_range(raw.fd(), static_cast<off64_t>(begun), static_cast<off64_t>(end - begun),
                          SYNC_FILE_RANGE_WRITE);
  begun = end;
}

// Writes HDF5's metadata, which lies between the datasets. Returns its digest.
std::string Writer::State::write_image() {
  raw.truncate(image.size());
  std::vector<std::byte> buffer;
  Digester meant;
  std::uint64_t position = kUserBlockBytes;
  const auto write_to = [&](std::uint64_t end) {
    while (position < end) {
      buffer.resize(std::min<std::uint64_t>(end - position, kWritePiece));
      run_piece(run, [&] {
        image.read(position, buffer);
        raw.pwrite_all(buffer, position);
        meant.update(buffer);
      });
      position += buffer.size();
    }
  };
  for (const Part& p : parts) {
    if (p.bytes == 0) continue;
    write_to(p.offset);
    position = p.offset + p.bytes;
  }
  write_to(image.size());
  return meant.finish().hex();
}

// Reads the synced file back from the disk and writes the found digest into its user block.
std::string Writer::State::seal() {
  drop_page_cache(raw.fd());
  const std::uint64_t size = raw.size();
  FileDigests found = check_digests(raw, parts, size, run);
  invalid = std::move(found.invalid);
  if (found.between != between) throw Error(path + ": reads back differently than written");
  const std::string block = format_user_block(magic, {size, found.whole});
  raw.pwrite_all(std::as_bytes(std::span(block)), 0);
  raw.sync();
  drop_page_cache(raw.fd(), kUserBlockBytes);
  if (Reader(path, magic).stated_digest() != found.whole) throw Error(path + ": reads back differently than written");
  return found.whole;
}

void Writer::State::set_attribute(hid_t object, std::string_view object_name, const std::string& key,
                                  const AttributeValue& value) {
  if (!valid_name(key)) fail(object_name, "attribute name not allowed: " + key);
  const RawAttribute stored = raw_attribute(value);
  if (!stored.file_type.ok() || !stored.space.ok()) fail(object_name, "HDF5 cannot make the type of attribute " + key);
  if (stored.bytes > kMaxAttributeBytes)
    fail(object_name, "attribute " + key + ": longer than " + std::to_string(kMaxAttributeBytes) + " bytes");
  Handle id = own(H5Acreate2(object, key.c_str(), stored.file_type.get(), stored.space.get(), H5P_DEFAULT, H5P_DEFAULT),
                  H5Aclose, object_name, "create an attribute");
  check(H5Awrite(id.get(), stored.memory_type, stored.data), object_name, "write an attribute");
  if (!id.close()) fail(object_name, "HDF5 cannot close an attribute");
}

void Writer::State::ensure_group(std::string_view group) {
  if (groups.contains(group)) return;
  const std::size_t slash = group.rfind('/');
  if (slash != std::string_view::npos) ensure_group(group.substr(0, slash));
  if (!valid_name(group.substr(slash == std::string_view::npos ? 0 : slash + 1))) fail(group, "name not allowed");
  Handle list = own(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, group, "create a property list");
  check(H5Pset_obj_track_times(list.get(), false), group, "switch time stamps off");
  Handle id = own(H5Gcreate2(h5.get(), std::string(group).c_str(), H5P_DEFAULT, list.get(), H5P_DEFAULT), H5Gclose,
                  group, "create a group");
  if (!id.close()) fail(group, "HDF5 cannot close a group");
  groups.emplace(group);
}

void Writer::State::ensure_parents(const std::string& dataset_name) {
  const std::size_t slash = dataset_name.rfind('/');
  if (slash != std::string::npos) ensure_group(std::string_view(dataset_name).substr(0, slash));
  if (!valid_name(std::string_view(dataset_name).substr(slash == std::string::npos ? 0 : slash + 1)))
    fail(dataset_name, "name not allowed");
}

Writer::Writer(const std::string& path, std::string_view magic, bool exclusive, PieceRunner run)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.run = std::move(run);
  s.path = path;
  s.magic = magic;
  s.raw = exclusive ? File::create_exclusive(path) : File::create_or_empty(path);
  const Lock lock = enter_library();
  Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  s.check(H5Pset_obj_track_times(creation.get(), false), "", "switch time stamps off");
  s.check(H5Pset_userblock(creation.get(), kUserBlockBytes), "", "reserve the user block");
  Handle access = image_access(s.image);
  s.check(H5Pset_small_data_block_size(access.get(), 0), "", "set file access");
  s.h5 = s.own(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose, "", "create the file");
}

Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&& other) noexcept {
  state_.swap(other.state_);
  return *this;
}
Writer::~Writer() {
  if (state_ == nullptr) return;
  const Lock lock = enter_library();
  state_.reset();
}

void Writer::attribute(std::string_view group, const std::string& name, const AttributeValue& value) {
  State& s = *state_;
  s.usable();
  const Lock lock = enter_library();
  s.ensure_group(group);
  Handle id = s.own(H5Gopen2(s.h5.get(), group.empty() ? "/" : std::string(group).c_str(), H5P_DEFAULT), H5Gclose,
                    group, "open a group");
  s.set_attribute(id.get(), group, name, value);
  if (!id.close()) s.fail(group, "HDF5 cannot close a group");
}

void Writer::begin_dataset(const std::string& name, DType dtype, std::span<const std::int64_t> shape,
                           const Attributes& attributes, Values values) {
  State& s = *state_;
  s.usable();
  const Lock lock = enter_library();
  if (s.dataset.ok()) s.fail(name, "begun before /" + s.name + " was ended");
  if (shape.size() > kMaxRank) s.fail(name, "has more than " + std::to_string(kMaxRank) + " dimensions");
  const auto elements = static_cast<std::uint64_t>(checked_product(shape, message(s.path, name, "shape")));
  s.bytes = checked_mul(elements, std::uint64_t{dtype::size_of(dtype)}, message(s.path, name, "size"));
  s.ensure_parents(name);
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  Handle space = s.own(
      shape.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(shape.size()), extents.data(), nullptr),
      H5Sclose, name, "make a shape");
  Handle type = storage_type(dtype);
  Handle list = s.own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, name, "create a property list");
  s.check(H5Pset_layout(list.get(), H5D_CONTIGUOUS), name, "set the layout");
  s.check(H5Pset_alloc_time(list.get(), H5D_ALLOC_TIME_EARLY), name, "set the allocation");
  s.check(H5Pset_fill_time(list.get(), H5D_FILL_TIME_NEVER), name, "switch filling off");
  s.check(H5Pset_obj_track_times(list.get(), false), name, "switch time stamps off");
  s.dataset = s.own(H5Dcreate2(s.h5.get(), name.c_str(), s.check(type.get(), name, "make the type"), space.get(),
                               H5P_DEFAULT, list.get(), H5P_DEFAULT),
                    H5Dclose, name, "create a dataset");
  s.name = name;
  s.dtype = dtype;
  s.values = values;
  s.offset = s.written = 0;
  s.digester = Digester();
  s.set_attribute(s.dataset.get(), name, "dtype", std::string(dtype::name_of(dtype)));
  for (const auto& [key, value] : attributes)
    if (key != "dtype" && key != "digest") s.set_attribute(s.dataset.get(), name, key, value);
  if (s.bytes == 0) return;
  const haddr_t offset = H5Dget_offset(s.dataset.get());
  if (offset == HADDR_UNDEF) s.fail(name, "HDF5 allocated no space for the dataset");
  s.offset = offset;
}

void Writer::write(std::span<const std::byte> bytes) {
  State& s = *state_;
  s.usable();
  if (!s.dataset.ok()) s.fail("", "bytes without a dataset");
  if (bytes.size() > s.bytes - s.written) s.fail(s.name, "more bytes than its shape has");
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kWritePiece));
    try {
      run_piece(s.run, [&] {
        s.raw.pwrite_all(piece, s.offset + s.written);
        s.digester.update(piece);
        s.written += piece.size();
        s.start_writing(s.offset + s.written);
      });
    } catch (...) {
      s.failed = true;
      throw;
    }
    bytes = bytes.subspan(piece.size());
  }
}

std::string Writer::end_dataset() {
  State& s = *state_;
  s.usable();
  if (!s.dataset.ok()) s.fail("", "end without a dataset");
  if (s.written != s.bytes)
    s.fail(s.name, "ended after " + std::to_string(s.written) + " of " + std::to_string(s.bytes) + " bytes");
  const Lock lock = enter_library();
  std::string digest = s.digester.finish().hex();
  s.set_attribute(s.dataset.get(), s.name, "digest", digest);
  if (!s.dataset.close()) s.fail(s.name, "HDF5 cannot close the dataset");
  s.parts.push_back({s.name, s.offset, s.bytes, digest, s.dtype, s.values});
  return digest;
}

std::string Writer::dataset(const std::string& name, DType dtype, std::span<const std::int64_t> shape,
                            std::span<const std::byte> bytes, const Attributes& attributes) {
  begin_dataset(name, dtype, shape, attributes);
  write(bytes);
  return end_dataset();
}

std::string Writer::text(const std::string& name, std::string_view value) {
  const std::int64_t length = checked_cast<std::int64_t>(value.size(), name);
  return dataset(name, DType::u8, {&length, 1}, std::as_bytes(std::span(value)));
}

void Writer::sync() {
  State& s = *state_;
  s.usable();
  if (s.dataset.ok()) s.fail(s.name, "not ended");
  {
    const Lock lock = enter_library();
    s.check(H5Fflush(s.h5.get(), H5F_SCOPE_GLOBAL), "", "write the file's metadata");
    if (!s.h5.close()) s.fail("", "HDF5 cannot close the file");
  }
  std::sort(s.parts.begin(), s.parts.end(), [](const Part& a, const Part& b) { return a.offset < b.offset; });
  try {
    s.between = s.write_image();
    s.raw.sync(s.run);
  } catch (...) {
    s.failed = true;
    throw;
  }
  s.synced = true;
}

const std::vector<std::string>& Writer::invalid() const { return state_->invalid; }

std::string Writer::finish() {
  State& s = *state_;
  if (!s.synced) sync();
  if (s.failed || !s.raw.is_open()) s.usable();
  try {
    std::string digest = s.seal();
    s.raw.close();
    return digest;
  } catch (...) {
    s.failed = true;
    throw;
  }
}

}  // namespace fp8::h5
