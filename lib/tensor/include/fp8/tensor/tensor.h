/// Views and tensors: dtype, shape, strides and device. A View does not own its memory and is passed by value; a Tensor
/// owns its buffer. At most four dimensions; strides count elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "fp8/device/arena.h"
#include "fp8/device/device.h"
#include "fp8/dtype/dtype.h"
#include "fp8/dtype/element.h"

namespace fp8::tensor {

using device::DeviceType;
using dtype::DType;

/// Extents, outermost first.
using Shape = std::initializer_list<std::int64_t>;

/// Array view of memory that it does not own.
struct View {
  void* data = nullptr;                  ///< first element
  DType dtype = DType::f32;              ///< element format
  DeviceType device = DeviceType::host;  ///< device of `data`
  int rank = 0;                          ///< dimensions, 0 to 4
  std::array<std::int64_t, 4> shape{};   ///< extents, outermost first
  std::array<std::int64_t, 4> stride{};  ///< elements between neighbours along each dimension

  /// Number of elements.
  std::int64_t size() const;
  /// size() times the bytes of an element.
  std::size_t bytes() const;
  /// Whether `data` is null.
  bool empty() const { return data == nullptr; }
  /// Whether elements lie in row-major order without gaps.
  bool contiguous() const;
  /// `data` as T* (float, Bf16, std::uint8_t, std::int32_t, ...). Throws Error when T does not match the dtype.
  template <class T>
  T* as() const;
  /// Rows [begin, end) of the first dimension.
  View rows(std::int64_t begin, std::int64_t end) const;
  /// Columns [begin, end) of the last dimension.
  View columns(std::int64_t begin, std::int64_t end) const;
  /// A view of the memory with both dimensions swapped. Throws Error unless there are two.
  View transposed() const;
  /// A view of the memory with another shape. Throws Error when the view is not contiguous or the sizes differ.
  View reshaped(Shape shape) const;
};

/// A contiguous view of `data`.
View make_view(void* data, DType dtype, DeviceType device, Shape shape);

/// Allocates an uninitialized contiguous view from the context's arena, counted under `category`.
View allocate(const device::Context& ctx, DType dtype, Shape shape, std::string_view category);
/// Allocates from a pool, until `memory` is freed.
View allocate_pooled(const device::Context& ctx, device::PooledMemory& memory, DType dtype, Shape shape,
                     std::string_view category);

/// Sum of the bytes of several views; 0 for an empty view.
template <class... Views>
double bytes_of(const Views&... views) {
  return (0.0 + ... + (views.empty() ? 0.0 : static_cast<double>(views.bytes())));
}

/// Copies a contiguous view to a contiguous view of the same type and size, possibly on another device; see
/// device::copy_bytes. Throws Error when they do not match.
void copy_across(const device::Context& ctx, const View& from, const View& to);

/// A contiguous host view on the context's device: `host` itself, or a copy in the arena, counted under `category`.
View to_device(const device::Context& ctx, const View& host, std::string_view category);

/// The elements of a contiguous view on the context's device, in host memory; waits for preceding work. T must match
/// the dtype. Empty in a dry context.
template <class T>
std::vector<T> to_host(const device::Context& ctx, const View& v) {
  std::vector<T> values(ctx.dry ? 0 : static_cast<std::size_t>(v.size()));
  if (!values.empty())
    device::copy_bytes(ctx, values.data(), DeviceType::host, v.as<T>(), v.device, values.size() * sizeof(T));
  return values;
}

/// A zero-initialized array that owns its memory.
class Tensor {
 public:
  Tensor() = default;
  /// Allocates memory on `device`; `what` is its name in the out-of-memory message.
  Tensor(DType dtype, Shape shape, DeviceType device = DeviceType::host, const char* what = "tensor");
  /// Moves the memory; `other` is empty afterwards.
  Tensor(Tensor&& other) noexcept;
  /// Moves the memory; `other` is empty afterwards.
  Tensor& operator=(Tensor&& other) noexcept;
  /// A view of the whole tensor.
  const View& view() const { return view_; }
  /// Elements as T; see View::as.
  template <class T>
  T* as() const {
    return view_.as<T>();
  }

 private:
  device::Buffer buffer_;
  View view_;
};

}  // namespace fp8::tensor
