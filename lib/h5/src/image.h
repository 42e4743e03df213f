/// The metadata that HDF5 writes to a file, kept in memory; dataset bytes are written separately. The expected
/// bytes of the file are therefore known without reading it, and HDF5 encounters no disk error. Private to the crate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "library.h"

namespace fp8::h5 {

/// The bytes of a file by their offset, zero where nothing was written. Allocates memory only for pages that were
/// written. For one thread at a time.
class Image {
 public:
  /// Puts `bytes` at `offset`; throws std::bad_alloc.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Copies the bytes from `offset` on.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;
  /// Size in bytes of the file laid out by HDF5.
  std::uint64_t size() const { return size_; }
  /// Sets the size in bytes.
  void set_size(std::uint64_t size) { size_ = size; }

 private:
  static constexpr std::uint64_t kPageBytes = 4096;
  std::map<std::uint64_t, std::array<std::byte, kPageBytes>> pages_;  // pages by offset
  std::uint64_t size_ = 0;
};

/// File access as file_access(), with a driver that reads and writes `image`, which must outlive the file.
Handle image_access(Image& image);

}  // namespace fp8::h5
