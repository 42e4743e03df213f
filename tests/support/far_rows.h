/// Matrices whose rows are so far apart that the offsets of elements need more than 32 bits, for tests of index
/// arithmetic. Only the pages that are touched take memory.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

#include "fp8/tensor/tensor.h"

namespace fp8::test {

/// A matrix in address space of its own, with unit column stride; all elements are zero at first.
class FarRows {
 public:
  tensor::View view;  ///< [rows, cols], on the host; the last row begins at element 2^32 or later

  /// `rows` is at least 2. Rows begin at multiples of 16 bytes. Throws std::system_error without address space.
  FarRows(dtype::DType type, std::int64_t rows, std::int64_t cols) {
    const std::int64_t stride = ((std::int64_t{1} << 32) / (rows - 1) / 16 + 1) * 16;
    bytes_ = static_cast<std::size_t>(stride * rows) * dtype::size_of(type);
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap of sparse memory");
    view = tensor::make_view(memory_, type, device::DeviceType::host, {rows, stride}).columns(0, cols);
  }
  FarRows(const FarRows&) = delete;
  FarRows& operator=(const FarRows&) = delete;
  ~FarRows() { ::munmap(memory_, bytes_); }

  /// Copies a matrix of the same type, with unit column stride and at most this shape, to the last rows and columns.
  void put(const tensor::View& from) const { copy(from, last(from)); }
  /// Copies the last rows and columns to such a matrix.
  void get(const tensor::View& to) const { copy(last(to), to); }

 private:
  tensor::View last(const tensor::View& like) const {
    const std::int64_t rows = view.shape[0], cols = view.shape[1];
    return view.rows(rows - like.shape[0], rows).columns(cols - like.shape[1], cols);
  }
  static void copy(const tensor::View& from, const tensor::View& to) {
    for (std::int64_t r = 0; r < from.shape[0]; ++r) {
      const tensor::View source = from.rows(r, r + 1), target = to.rows(r, r + 1);
      std::memcpy(target.data, source.data, static_cast<std::size_t>(from.shape[1]) * dtype::size_of(from.dtype));
    }
  }
  std::size_t bytes_ = 0;
  void* memory_ = nullptr;
};

}  // namespace fp8::test
