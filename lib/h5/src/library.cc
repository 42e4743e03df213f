// Process-wide settings of HDF5 and the mapping from our dtypes to its storage types.
#include "library.h"

#include <algorithm>

#include "fp8/base/error.h"

namespace fp8::h5 {

Lock enter_library() {
  static std::mutex mutex;
  Lock lock(mutex);
  static const bool once = [] {
    H5dont_atexit();
    return H5open() >= 0 && H5PLset_loading_state(0) >= 0;
  }();
  if (!once) throw Error("HDF5: cannot be initialized");
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  return lock;
}

Handle file_access() {
  Handle list(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  const bool set = list.ok() && H5Pset_fapl_sec2(list.get()) >= 0 &&
                   H5Pset_file_locking(list.get(), false, true) >= 0 &&
                   H5Pset_libver_bounds(list.get(), H5F_LIBVER_V18, H5F_LIBVER_V110) >= 0 &&
                   H5Pset_fclose_degree(list.get(), H5F_CLOSE_STRONG) >= 0 && H5Pset_alignment(list.get(), 1, 64) >= 0;
  if (!set) throw Error("HDF5: cannot set file access");
  return list;
}

namespace {

Handle bfloat16_type() {
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  const bool set = type.ok() && H5Tset_fields(type.get(), 15, 7, 8, 0, 7) >= 0 && H5Tset_size(type.get(), 2) >= 0 &&
                   H5Tset_ebias(type.get(), 127) >= 0;
  return set ? std::move(type) : Handle();
}

hid_t standard_type(DType type) {
  switch (type) {
    case DType::f32:
      return H5T_IEEE_F32LE;
    case DType::f64:
      return H5T_IEEE_F64LE;
    case DType::e4m3:
    case DType::e5m2:
    case DType::e2m1:
    case DType::e8m0:
    case DType::u8:
      return H5T_STD_U8LE;
    case DType::f16:
    case DType::u16:
      return H5T_STD_U16LE;
    case DType::u32:
      return H5T_STD_U32LE;
    case DType::u64:
      return H5T_STD_U64LE;
    case DType::i32:
      return H5T_STD_I32LE;
    case DType::i64:
      return H5T_STD_I64LE;
    case DType::bf16:
      break;
  }
  return -1;
}

}  // namespace

Handle storage_type(DType type) {
  if (type == DType::bf16) return bfloat16_type();
  return {H5Tcopy(standard_type(type)), H5Tclose};
}

bool valid_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes || name == "." || name == "..") return false;
  return std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < '\x7f' && c != '/'; });
}

std::string message(const std::string& path, std::string_view name, const std::string& reason) {
  std::string text = path + ": ";
  if (!name.empty()) text.append("/").append(name).append(": ");
  return text.append(reason);
}

std::string text_or_empty(const Attributes& attributes, std::string_view name) {
  const auto it = attributes.find(name);
  const auto* text = it == attributes.end() ? nullptr : std::get_if<std::string>(&it->second);
  return text == nullptr ? std::string() : *text;
}

std::string library_version() {
  const Lock lock = enter_library();  // even this call registers HDF5's exit handler
  unsigned major = 0, minor = 0, release = 0;
  if (H5get_libversion(&major, &minor, &release) < 0) return "HDF5";
  return "HDF5 " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

}  // namespace fp8::h5

// Called only by the leak sanitizer, if a build has one: HDF5 1.10 leaks the memory of headers that are damaged, and a
// file abandoned after an I/O error is left open on purpose. NOLINTBEGIN(bugprone-reserved-identifier): the names are
// the sanitizer's.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_options();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5\nleak:H5"; }
extern "C" const char* __lsan_default_options() { return "print_suppressions=0"; }
// NOLINTEND(bugprone-reserved-identifier)
