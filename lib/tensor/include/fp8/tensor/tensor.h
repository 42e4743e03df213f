/// Views and tensors: dtype + shape + strides + place. A view owns nothing and is passed by value; a Tensor owns its
/// buffer. No arithmetic here. At most four dimensions; strides count elements.
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

using device::Place;
using dtype::DType;

/// Extents, outermost first.
using Shape = std::initializer_list<std::int64_t>;

/// Memory someone else owns, seen as an array.
struct View {
  void* data = nullptr;                  ///< first element
  DType dtype = DType::f32;              ///< element format
  Place place = Place::host;             ///< where data points to
  int rank = 0;                          ///< dimensions, 0 to 4
  std::array<std::int64_t, 4> shape{};   ///< extents, outermost first
  std::array<std::int64_t, 4> stride{};  ///< elements between neighbours along each dimension

  /// Number of elements.
  std::int64_t size() const;
  /// Bytes when contiguous.
  std::size_t bytes() const;
  /// Whether there is no memory behind it.
  bool empty() const { return data == nullptr; }
  /// Whether elements lie in row-major order without gaps.
  bool contiguous() const;
  /// Elements as T (float, Bf16, std::uint8_t, std::int32_t, ...). Throws Error when T does not fit the dtype.
  template <class T>
  T* as() const;
  /// Rows [begin, end) of the first dimension.
  View rows(std::int64_t begin, std::int64_t end) const;
  /// Columns [begin, end) of the last dimension.
  View columns(std::int64_t begin, std::int64_t end) const;
  /// A two-dimensional view with its dimensions swapped, same memory.
  View transposed() const;
  /// The same memory with another shape; only for contiguous views. Throws Error when the sizes differ.
  View reshaped(Shape shape) const;
};

/// A contiguous view of `data`.
View make_view(void* data, DType dtype, Place place, Shape shape);

/// A contiguous view on memory taken from the context's arena for `category`, uninitialized.
View take(const device::Context& ctx, DType dtype, Shape shape, std::string_view category);

/// Bytes of the elements of several views together; an empty view has none.
template <class... Views>
double bytes_of(const Views&... views) {
  return (0.0 + ... + (views.empty() ? 0.0 : static_cast<double>(views.bytes())));
}

/// Copies a contiguous view into another of the same type and size, whose place may be another; see
/// device::copy_bytes. Throws Error when they do not fit.
void copy_across(const device::Context& ctx, const View& from, const View& to);

/// Host memory as the context's place sees it: `host` itself, or a copy in memory of the arena, under `category`.
/// Contiguous.
View to_place(const device::Context& ctx, const View& host, std::string_view category);

/// The elements of a contiguous view at the context's place, in host memory; waits for the work before. T must fit the
/// dtype. Empty in a dry context.
template <class T>
std::vector<T> to_host(const device::Context& ctx, const View& v) {
  std::vector<T> values(ctx.dry ? 0 : static_cast<std::size_t>(v.size()));
  if (!values.empty())
    device::copy_bytes(ctx, values.data(), Place::host, v.as<T>(), v.place, values.size() * sizeof(T));
  return values;
}

/// Owned memory with a shape. Zero when made.
class Tensor {
 public:
  Tensor() = default;
  /// Takes memory at `place`; `what` names it when there is not enough.
  Tensor(DType dtype, Shape shape, Place place = Place::host, const char* what = "tensor");
  /// Takes over the memory; `other` is left empty.
  Tensor(Tensor&& other) noexcept;
  /// Takes over the memory; `other` is left empty.
  Tensor& operator=(Tensor&& other) noexcept;
  /// A view of all of it.
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
