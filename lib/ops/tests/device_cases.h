/// Helpers of cases that compare a device with the host. A device is a class that has copies of host views and the
/// operations as members: the kernels on the host, thread by thread, in this crate's tests (shim_device.h), or a GPU in
/// tests/gpu. The cases are in *_cases.h.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "fp8/ops/amax.h"
#include "reference.h"

namespace fp8::ops::cases {

/// Number of elements from the first to the last of a view, including those between its rows.
inline std::int64_t span_of(const View& v) {
  std::int64_t last = 0;
  for (int d = 0; d < v.rank; ++d) {
    const auto at = static_cast<std::size_t>(d);
    if (v.shape[at] == 0) return 0;
    last += (v.shape[at] - 1) * v.stride[at];
  }
  return last + 1;
}

/// The span of a view as one dimension.
inline View flat(const View& v) { return tensor::make_view(v.data, v.dtype, v.device, {span_of(v)}); }

/// Layout of the rows of a test's matrix.
enum class Layout { contiguous, wide, shifted };
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::wide, Layout::shifted};

/// A matrix with a layout: contiguous; part of a matrix that is wider by at least 8 columns and whose rows begin at
/// multiples of 16 bytes; the same, shifted by one column.
struct Matrix {
  Tensor whole;
  View view;
  Matrix(DType type, std::int64_t rows, std::int64_t columns, Layout layout, unsigned seed, double scale = 1.0) {
    const bool gaps = layout != Layout::contiguous;
    const std::int64_t width = gaps ? (columns + 15) / 8 * 8 : columns, first = layout == Layout::shifted ? 1 : 0;
    whole = make(type, {rows, width}, random_values(rows * width, seed, scale));
    view = whole.view().columns(first, first + columns);
  }
};

/// Expects |difference| <= tolerance (|want| + root mean square of all), and NaN at the same places.
inline void expect_close(const Values& got, const Values& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  double squares = 0;
  for (const double v : want) squares += std::isfinite(v) ? v * v : 0;
  const double rms = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(want.size(), 1)));
  for (std::size_t i = 0; i < want.size(); ++i) {
    const bool same = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])) ||
                      std::abs(got[i] - want[i]) <= tolerance * (std::abs(want[i]) + rms);
    ASSERT_TRUE(same) << what << ": element " << i << " of " << want.size() << " is " << got[i] << ", host " << want[i];
  }
}

/// Expects a view on a device to equal one on the host, including elements between rows.
template <class Device>
void expect_same(Device& device, const View& on_device, const View& host, double tolerance, const std::string& what) {
  const Tensor back(host.dtype, {span_of(host)});
  device.get(on_device, back.view());
  expect_close(read(back.view()), read(flat(host)), tolerance, what);
}

/// Expects equal rows, and elements between rows that are unchanged: `before` has the strides of `host`.
template <class Device>
void expect_same_inside(Device& device, const View& on_device, const View& host, const View& before, double tolerance,
                        const std::string& what) {
  const Tensor back(host.dtype, {span_of(host)});
  device.get(on_device, back.view());
  View inside = host;
  inside.data = back.view().data;
  expect_close(read(inside), read(host), tolerance, what);
  write(inside, read(before));
  expect_close(read(back.view()), read(flat(before)), 0, what + ", between rows");
}

/// Expects element i of amaxes on the host to be that of `result`; a NaN counts unless it is skipped.
inline void expect_amax(const Amax& amax, std::size_t i, const View& result, const std::string& what) {
  double largest = 0;
  bool nan = false;
  for (const double v : read(result)) {
    nan = nan || std::isnan(v);
    if (std::abs(v) > largest) largest = std::abs(v);
  }
  const float is = amax.value.as<float>()[i];
  EXPECT_TRUE(nan && !amax.skip_nan ? std::isnan(is) : static_cast<double>(is) == largest)
      << what << ": amax " << i << " is " << is << ", not " << largest << (nan ? " or NaN" : "");
}

/// Expects the amax of a result on a device; `like` has the shape of the result.
template <class Device>
void expect_amax(Device& device, const Amax& amax, std::size_t i, const View& result, const View& like,
                 const std::string& what) {
  const Tensor amaxes(DType::f32, {amax.value.size()}), back(like.dtype, {like.shape[0], like.shape[1]});
  device.get(amax.value, amaxes.view());
  device.get(result, back.view());
  expect_amax({amaxes.view(), amax.skip_nan}, i, back.view(), what + " on the device");
}

/// "bf16 [3, 17] wide" for a message.
inline std::string name_of(DType type, std::int64_t rows, std::int64_t columns, Layout layout) {
  constexpr const char* kNames[] = {"contiguous", "wide", "shifted"};
  return std::string(dtype::name_of(type)) + " [" + std::to_string(rows) + ", " + std::to_string(columns) + "] " +
         kNames[static_cast<int>(layout)];
}

}  // namespace fp8::ops::cases
