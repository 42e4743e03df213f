// Array conversions against the element functions, at lengths that exercise the vector bodies and the remainders; names
// and sizes.
#include "fp8/dtype/convert.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "fp8_test.h"

namespace fp8::dtype {
namespace {

using test::error_of;

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

std::vector<std::uint8_t> all_codes() {
  std::vector<std::uint8_t> codes(256);
  std::iota(codes.begin(), codes.end(), std::uint8_t{0});
  return codes;
}

TEST(DType, NamesReadBack) {
  for (int i = 0; i <= static_cast<int>(DType::i64); ++i) {
    const auto t = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(name_of(t)), t);
    EXPECT_GT(size_of(t), 0u);
  }
  EXPECT_EQ(name_of(DType::e4m3), "float8_e4m3fn");
  EXPECT_EQ(size_of(DType::bf16), 2u);
  EXPECT_EQ(parse_dtype("float8"), std::nullopt);
}

TEST(DType, LargestValues) {
  EXPECT_EQ(max_of(DType::e4m3), 448.0f);
  EXPECT_EQ(max_of(DType::e5m2), 57344.0f);
  EXPECT_EQ(error_of([] { max_of(DType::bf16); }), "bfloat16: not an FP8 format");
}

TEST(Convert, Bf16AndFloat) {
  for (const std::size_t n : {0u, 1u, 7u, 65536u}) {
    std::vector<Bf16> bf16(n), back(n);
    std::vector<float> floats(n);
    for (std::size_t i = 0; i < n; ++i) bf16[i].bits = static_cast<std::uint16_t>(i);
    convert(std::span<const Bf16>(bf16), floats);
    convert(std::span<const float>(floats), back);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_TRUE(same(floats[i], to_float(bf16[i])));
      if (!std::isnan(floats[i])) {
        ASSERT_EQ(back[i].bits, bf16[i].bits);
      }
    }
  }
}

TEST(Convert, DecodesCodes) {
  const auto codes = all_codes();
  std::vector<float> floats(256);
  std::vector<Bf16> wide(256);
  for (const DType format : {DType::e4m3, DType::e5m2}) {
    to_floats(format, codes.data(), floats);
    decode_fp8(format, codes, wide);
    for (std::size_t i = 0; i < 256; ++i) {
      EXPECT_TRUE(same(floats[i], format == DType::e4m3 ? from_e4m3(codes[i]) : from_e5m2(codes[i])));
      EXPECT_TRUE(same(floats[i], to_float(wide[i])));
    }
  }
}

TEST(Convert, ToFloatsFromEveryFormat) {
  const std::vector<double> doubles{1.0 + 0x1p-30, -3.5, 1e300};
  std::vector<float> out(3);
  to_floats(DType::f64, doubles.data(), out);
  EXPECT_EQ(out, (std::vector<float>{1.0f, -3.5f, INFINITY}));

  // 1, -2, largest, smallest normal, smallest subnormal, -0, infinity, NaN
  const std::vector<std::uint16_t> halves{0x3C00, 0xC000, 0x7BFF, 0x0400, 0x0001, 0x8000, 0x7C00, 0x7E00};
  out.resize(halves.size());
  to_floats(DType::f16, halves.data(), out);
  EXPECT_EQ(std::vector<float>(out.begin(), out.end() - 1),
            (std::vector<float>{1.0f, -2.0f, 65504.0f, 0x1p-14f, 0x1p-24f, -0.0f, INFINITY}));
  EXPECT_TRUE(std::signbit(out[5]));
  EXPECT_TRUE(std::isnan(out[7]));

  const auto codes = all_codes();
  out.resize(256);
  to_floats(DType::e8m0, codes.data(), out);
  for (std::size_t i = 0; i < 256; ++i) EXPECT_TRUE(same(out[i], from_e8m0(codes[i])));
  to_floats(DType::e5m2, codes.data(), out);
  EXPECT_EQ(out[0x3C], 1.0f);
}

TEST(Convert, PacksTwoCodesInAByte) {
  const std::array<float, 8> magnitudes{0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  std::vector<std::uint8_t> codes, bytes(256);
  for (unsigned low = 0; low < 16; ++low)
    for (unsigned high = 0; high < 16; ++high) {
      codes.push_back(static_cast<std::uint8_t>(low));
      codes.push_back(static_cast<std::uint8_t>(high));
    }
  pack_e2m1(codes, bytes);
  EXPECT_EQ(bytes[0x2C], 0xC2) << "element 0 is in the low bits";
  std::vector<float> out(codes.size());
  to_floats(DType::e2m1, bytes.data(), out);
  for (std::size_t i = 0; i < out.size(); ++i)
    EXPECT_TRUE(same(out[i], std::copysign(magnitudes[codes[i] & 7U], (codes[i] & 8U) != 0 ? -1.0F : 1.0F))) << i;
  out.resize(3);
  EXPECT_EQ(error_of([&] { to_floats(DType::e2m1, bytes.data(), out); }),
            "float4_e2m1fn_x2: an odd number of elements");
}

TEST(Convert, ToFloatsAtAnyAlignment) {
  const std::vector<Bf16> values(37, to_bf16(1.5f));
  std::vector<unsigned char> bytes(values.size() * 2 + 1);
  std::memcpy(bytes.data() + 1, values.data(), values.size() * 2);
  std::vector<float> out(values.size());
  to_floats(DType::bf16, bytes.data() + 1, out);
  EXPECT_EQ(out, std::vector<float>(values.size(), 1.5f));
}

TEST(Convert, FromFloats) {
  const std::vector<float> in{1.0f, -2.5f, 1.0f + 0x1p-8f};
  std::vector<float> floats(3);
  std::vector<Bf16> bf16(3);
  from_floats(in, DType::f32, floats.data());
  from_floats(in, DType::bf16, bf16.data());
  EXPECT_EQ(floats, in);
  EXPECT_EQ(bf16[1].bits, 0xC020);
  EXPECT_EQ(bf16[2].bits, 0x3F80);
}

TEST(Convert, ErrorsNameTheFormat) {
  std::vector<float> floats(2);
  std::vector<Bf16> bf16(3);
  std::vector<std::uint8_t> codes(2);
  EXPECT_EQ(error_of([&] { convert(std::span<const float>(floats), bf16); }), "convert: 2 elements into 3");
  EXPECT_EQ(error_of([&] { decode_fp8(DType::bf16, codes, std::span(bf16).first(2)); }), "bfloat16: not an FP8 format");
  EXPECT_EQ(error_of([&] { to_floats(DType::i64, codes.data(), floats); }), "int64: not a floating-point format");
  EXPECT_EQ(error_of([&] { from_floats(floats, DType::e4m3, codes.data()); }),
            "float8_e4m3fn: floats are stored as float32 or bfloat16");
}

}  // namespace
}  // namespace fp8::dtype
