// Shape arithmetic of views and tensors. Sizes are checked for overflow before memory is allocated.
#include "fp8/tensor/tensor.h"

#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"

namespace fp8::tensor {
namespace {

using dtype::Bf16;

constexpr int kMaxRank = 4;

template <class T>
bool fits(DType t) {
  if constexpr (std::is_same_v<T, float>) return t == DType::f32;
  if constexpr (std::is_same_v<T, double>) return t == DType::f64;
  if constexpr (std::is_same_v<T, Bf16>) return t == DType::bf16;
  if constexpr (std::is_same_v<T, std::uint8_t>) {
    return t == DType::u8 || is_coded(t) || t == DType::e8m0;
  }
  if constexpr (std::is_same_v<T, std::uint16_t>) return t == DType::u16 || t == DType::f16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return t == DType::u32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return t == DType::u64;
  if constexpr (std::is_same_v<T, std::int32_t>) return t == DType::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return t == DType::i64;
}

std::string text_of(const View& v) {
  std::string s = "[";
  for (int i = 0; i < v.rank; ++i) {
    s += (i == 0 ? "" : ", ") + std::to_string(v.shape[static_cast<std::size_t>(i)]);
  }
  return s + "]";
}

View slice(const View& v, int axis, std::int64_t begin, std::int64_t end) {
  const auto i = static_cast<std::size_t>(axis);
  if (v.rank < 1 || begin < 0 || begin > end || end > v.shape[i]) {
    throw Error("tensor " + text_of(v) + ": no range " + std::to_string(begin) + " to " + std::to_string(end) +
                " in dimension " + std::to_string(axis));
  }
  View r = v;
  r.shape[i] = end - begin;
  if (v.data != nullptr) {
    r.data = static_cast<std::byte*>(v.data) + begin * v.stride[i] * static_cast<std::int64_t>(size_of(v.dtype));
  }
  return r;
}

std::size_t bytes_of(DType dtype, Shape shape) {
  const std::int64_t elements = checked_product(std::span(shape.begin(), shape.size()), "tensor");
  return checked_mul(static_cast<std::size_t>(elements), size_of(dtype), "tensor");
}

}  // namespace

std::int64_t View::size() const {
  std::int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= shape[static_cast<std::size_t>(i)];
  return n;
}

std::size_t View::bytes() const { return static_cast<std::size_t>(size()) * size_of(dtype); }

bool View::contiguous() const {
  if (size() == 0) return true;
  std::int64_t expected = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const auto d = static_cast<std::size_t>(i);
    if (shape[d] != 1 && stride[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

template <class T>
T* View::as() const {
  if (!fits<std::remove_const_t<T>>(dtype)) {
    throw Error("tensor " + text_of(*this) + ": elements are " + std::string(name_of(dtype)) +
                ", accessed as another type");
  }
  return static_cast<T*>(data);
}

View View::rows(std::int64_t begin, std::int64_t end) const { return slice(*this, 0, begin, end); }

View View::columns(std::int64_t begin, std::int64_t end) const { return slice(*this, rank - 1, begin, end); }

View View::transposed() const {
  if (rank != 2) throw Error("tensor " + text_of(*this) + ": only two dimensions can be transposed");
  View r = *this;
  std::swap(r.shape[0], r.shape[1]);
  std::swap(r.stride[0], r.stride[1]);
  return r;
}

View View::reshaped(Shape to) const {
  if (!contiguous()) throw Error("tensor " + text_of(*this) + ": not contiguous, cannot be reshaped");
  const View r = make_view(data, dtype, device, to);
  if (r.size() != size()) throw Error("tensor " + text_of(*this) + ": cannot be reshaped to " + text_of(r));
  return r;
}

View make_view(void* data, DType dtype, DeviceType device, Shape shape) {
  if (shape.size() > kMaxRank) throw Error("tensor: " + std::to_string(shape.size()) + " dimensions, at most 4");
  (void)bytes_of(dtype, shape);
  View v{.data = data,
         .dtype = dtype,
         .device = device,
         .rank = static_cast<int>(shape.size()),
         .shape = {},
         .stride = {}};
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    v.shape[i] = shape.begin()[i];
    v.stride[i] = stride;
    stride = checked_mul(stride, v.shape[i] > 0 ? v.shape[i] : 1, "tensor");
  }
  return v;
}

View allocate(const device::Context& ctx, DType dtype, Shape shape, std::string_view category) {
  if (ctx.arena == nullptr) throw Error("tensor: " + std::string(category) + ": the context has no arena");
  View v = make_view(nullptr, dtype, ctx.device, shape);
  v.data = ctx.arena->allocate(v.bytes(), category);
  return v;
}

View allocate_pooled(const device::Context& ctx, device::PooledMemory& memory, DType dtype, Shape shape,
                     std::string_view category) {
  View v = make_view(nullptr, dtype, ctx.device, shape);
  v.data = memory.allocate(v.bytes(), category);
  return v;
}

void copy_across(const device::Context& ctx, const View& from, const View& to) {
  if (from.dtype != to.dtype || from.size() != to.size() || !from.contiguous() || !to.contiguous())
    throw Error("a copy between devices: the views differ in type or size, or are not contiguous");
  device::copy_bytes(ctx, to.data, to.device, from.data, from.device, from.bytes());
}

View to_device(const device::Context& ctx, const View& host, std::string_view category) {
  if (ctx.device == DeviceType::host) return host;
  if (!host.contiguous()) throw Error("a view that is not contiguous cannot be copied to a device");
  View there = host;
  there.device = ctx.device;
  there.data = ctx.arena->allocate(host.bytes(), category);
  device::copy_bytes(ctx, there.data, ctx.device, host.data, DeviceType::host, host.bytes());
  return there;
}

Tensor::Tensor(DType dtype, Shape shape, DeviceType device, const char* what)
    : buffer_(bytes_of(dtype, shape), device, what), view_(make_view(buffer_.data(), dtype, device, shape)) {}

Tensor::Tensor(Tensor&& other) noexcept
    : buffer_(std::move(other.buffer_)), view_(std::exchange(other.view_, View{})) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  buffer_ = std::move(other.buffer_);
  if (this != &other) view_ = std::exchange(other.view_, View{});
  return *this;
}

// The element types of dtype::DType, mutable and const.
template float* View::as<float>() const;
template double* View::as<double>() const;
template Bf16* View::as<Bf16>() const;
template std::uint8_t* View::as<std::uint8_t>() const;
template std::uint16_t* View::as<std::uint16_t>() const;
template std::uint32_t* View::as<std::uint32_t>() const;
template std::uint64_t* View::as<std::uint64_t>() const;
template std::int32_t* View::as<std::int32_t>() const;
template std::int64_t* View::as<std::int64_t>() const;
template const float* View::as<const float>() const;
template const double* View::as<const double>() const;
template const Bf16* View::as<const Bf16>() const;
template const std::uint8_t* View::as<const std::uint8_t>() const;
template const std::uint16_t* View::as<const std::uint16_t>() const;
template const std::uint32_t* View::as<const std::uint32_t>() const;
template const std::uint64_t* View::as<const std::uint64_t>() const;
template const std::int32_t* View::as<const std::int32_t>() const;
template const std::int64_t* View::as<const std::int64_t>() const;

}  // namespace fp8::tensor
