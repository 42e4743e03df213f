// An HDF5 virtual file driver over an Image. Its functions are called by HDF5, so nothing may be thrown.
#include "image.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <new>

#include "fp8/base/error.h"

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

namespace fp8::h5 {
namespace {

// The driver's file object. HDF5 fills in the first member.
struct OpenImage {
  H5FD_t base;
  Image* image;
  haddr_t allocated;  // end of the addresses in use
};

OpenImage& of(H5FD_t* file) { return *reinterpret_cast<OpenImage*>(file); }
const OpenImage& of(const H5FD_t* file) { return *reinterpret_cast<const OpenImage*>(file); }

H5FD_t* open_image(const char*, unsigned, hid_t access, haddr_t) noexcept {
  const void* info = H5Pget_driver_info(access);
  auto* file = info == nullptr ? nullptr : new (std::nothrow) OpenImage{};
  if (file == nullptr) return nullptr;
  file->image = *static_cast<Image* const*>(info);
  return &file->base;
}

herr_t close_image(H5FD_t* file) noexcept {
  const std::unique_ptr<OpenImage> closed(&of(file));
  return 0;
}

// The values that HDF5's own driver for plain files returns, as far as the layout depends on them.
herr_t query(const H5FD_t*, unsigned long* flags) noexcept {
  if (flags != nullptr)
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t allocated_end(const H5FD_t* file, H5FD_mem_t) noexcept { return of(file).allocated; }

herr_t set_allocated_end(H5FD_t* file, H5FD_mem_t, haddr_t end) noexcept {
  of(file).allocated = end;
  return 0;
}

haddr_t file_end(const H5FD_t* file, H5FD_mem_t) noexcept { return of(file).image->size(); }

herr_t read_image(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, std::size_t size, void* bytes) noexcept {
  of(file).image->read(at, {static_cast<std::byte*>(bytes), size});
  return 0;
}

herr_t write_image(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, std::size_t size, const void* bytes) noexcept {
  try {
    of(file).image->write(at, {static_cast<const std::byte*>(bytes), size});
    return 0;
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

herr_t truncate_image(H5FD_t* file, hid_t, hbool_t) noexcept {
  of(file).image->set_size(of(file).allocated);
  return 0;
}

// Registered once per process.
hid_t driver() {
  static const hid_t id = [] {
    H5FD_class_t c{};
#if H5_VERSION_GE(1, 13, 0)
    c.version = H5FD_CLASS_VERSION;
    c.value = static_cast<H5FD_class_value_t>(600);
#endif
    c.name = "fp8-image";
    c.maxaddr = static_cast<haddr_t>(std::numeric_limits<std::int64_t>::max());
    c.fc_degree = H5F_CLOSE_STRONG;
    c.fapl_size = sizeof(void*);  // an Image*
    c.open = open_image;
    c.close = close_image;
    c.query = query;
    c.get_eoa = allocated_end;
    c.set_eoa = set_allocated_end;
    c.get_eof = file_end;
    c.read = read_image;
    c.write = write_image;
    c.truncate = truncate_image;
    constexpr std::array<H5FD_mem_t, H5FD_MEM_NTYPES> kLists = H5FD_FLMAP_DICHOTOMY;
    std::copy(kLists.begin(), kLists.end(), c.fl_map);
    return H5FDregister(&c);
  }();
  return id;
}

}  // namespace

void Image::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t within = offset % kPageBytes;
    const auto part = bytes.first(std::min<std::size_t>(bytes.size(), kPageBytes - within));
    auto& page = pages_.try_emplace(offset - within).first->second;
    std::copy(part.begin(), part.end(), page.begin() + static_cast<std::ptrdiff_t>(within));
    offset += part.size();
    bytes = bytes.subspan(part.size());
  }
  size_ = std::max(size_, offset);
}

void Image::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const std::uint64_t within = offset % kPageBytes;
    const auto part = bytes.first(std::min<std::size_t>(bytes.size(), kPageBytes - within));
    const auto page = pages_.find(offset - within);
    if (page == pages_.end()) {
      std::fill(part.begin(), part.end(), std::byte{});
    } else {
      std::copy_n(page->second.begin() + static_cast<std::ptrdiff_t>(within), part.size(), part.begin());
    }
    offset += part.size();
    bytes = bytes.subspan(part.size());
  }
}

Handle image_access(Image& image) {
  Handle access = file_access();
  const Image* const info = &image;
  if (H5Pset_driver(access.get(), driver(), static_cast<const void*>(&info)) < 0)
    throw Error("HDF5: cannot set file access");
  return access;
}

}  // namespace fp8::h5
