/// Comparison of a device's codes with the host's: bytes, or emulated BF16 values, in the layout for a GEMM, with zero
/// padding. All views are in host memory.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "fp8_codes.h"
#include "matrices.h"

namespace fp8::quant {

/// Expects the scales of two casts to have the same bits. Scales of blocks on a device have the layout of cuBLASLt.
inline void expect_same_scales(const Quantized& device, const Quantized& host) {
  ASSERT_EQ(device.codes.shape, host.codes.shape);
  ASSERT_EQ(device.format, host.format);
  ASSERT_EQ(device.scale.size(), host.scale.size());
  ASSERT_EQ(device.scale.rank, host.scale.rank);
  const bool blocks = host.scale.rank == 2, by_row = device.contract == ContractionAxis::last;
  const std::int64_t inner = blocks ? host.scale.shape[1] : 1;
  const auto at = [&](const View& v, std::int64_t i) {
    return v.as<float>()[blocks ? i / inner * v.stride[0] + i % inner * v.stride[1] : i];
  };
  for (std::int64_t i = 0; i < host.scale.size(); ++i) {
    ASSERT_TRUE(same(at(device.scale, i), at(host.scale, i))) << i;
    ASSERT_TRUE(same(at(device.inverse_scale, i), at(host.inverse_scale, i))) << i;
  }
  if (!blocks) return;
  const std::size_t outer = by_row ? 0 : 1, along = 1 - outer;
  const bool squares = device.granularity == Granularity::block128x128;
  for (const View& v : {device.scale, device.inverse_scale}) {
    EXPECT_EQ(v.stride[outer], squares ? (v.shape[along] + 3) / 4 * 4 : 1);
    const std::int64_t step = device.granularity == Granularity::block1x128 ? 8 : 1;
    EXPECT_EQ(v.stride[along], squares ? 1 : (v.shape[outer] + step - 1) / step * step);
  }
}

/// Calls f(device's element, host's value) for every element, padding included (0).
template <class T, class F>
void for_each_code(const Quantized& device, const Quantized& host, F&& f) {
  const bool by_row = device.contract == ContractionAxis::last;
  const std::int64_t lines = host.codes.shape[by_row ? 0 : 1], length = host.codes.shape[by_row ? 1 : 0];
  const std::int64_t stride = device.codes.stride[by_row ? 0 : 1];
  ASSERT_EQ(device.codes.stride[by_row ? 1 : 0], 1);
  ASSERT_EQ(stride, (length + 15) / 16 * 16);
  for (std::int64_t line = 0; line < lines; ++line)
    for (std::int64_t i = 0; i < stride; ++i) {
      const std::int64_t at = by_row ? line * host.codes.stride[0] + i * host.codes.stride[1]
                                     : i * host.codes.stride[0] + line * host.codes.stride[1];
      f(device.codes.as<T>()[line * stride + i], i < length ? host.codes.as<dtype::Bf16>()[at] : dtype::Bf16{0});
    }
}

/// Expects the codes of the host's values; any NaN for a NaN.
inline void expect_same(const Quantized& device, const Quantized& host) {
  expect_same_scales(device, host);
  for_each_code<std::uint8_t>(device, host, [&](std::uint8_t code, dtype::Bf16 value) {
    const bool e4m3 = host.format == dtype::DType::e4m3;
    const float v = dtype::to_float(value);
    if (std::isnan(v))
      ASSERT_TRUE(std::isnan(e4m3 ? dtype::from_e4m3(code) : dtype::from_e5m2(code)));
    else
      ASSERT_EQ(code, e4m3 ? dtype::to_e4m3(v) : dtype::to_e5m2(v));
  });
}

/// Expects the host's values times their scales, as BF16 or f32; `host` is folded.
inline void expect_folded(const Quantized& device, const Quantized& host) {
  expect_same_scales(device, host);
  EXPECT_TRUE(device.folded);
  const auto value = [&](float got, dtype::Bf16 wanted) { ASSERT_TRUE(same(got, dtype::to_float(wanted))); };
  if (device.codes.dtype == dtype::DType::f32)
    for_each_code<float>(device, host, value);
  else
    for_each_code<dtype::Bf16>(device, host,
                               [&](dtype::Bf16 got, dtype::Bf16 wanted) { value(dtype::to_float(got), wanted); });
}

/// Expects the host's BF16 values.
inline void expect_emulated(const Quantized& device, const Quantized& host) {
  expect_same_scales(device, host);
  ASSERT_EQ(device.codes.dtype, dtype::DType::bf16);
  for_each_code<dtype::Bf16>(device, host,
                             [&](dtype::Bf16 got, dtype::Bf16 value) { ASSERT_EQ(got.bits, value.bits); });
}

}  // namespace fp8::quant
