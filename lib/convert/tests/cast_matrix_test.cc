// Casts of one matrix against the reference values of torchao, and independence of the piece size.
#include "fp8/convert/cast_matrix.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "fp8/dtype/convert.h"
#include "fp8_codes.h"
#include "fp8_test.h"
#include "plain_file.h"
#include "weights.h"

namespace fp8::convert {
namespace {

using dtype::DType;

StoredMatrix in_memory(const std::vector<std::byte>& bytes, std::int64_t rows, std::int64_t cols, DType type) {
  const std::size_t row = static_cast<std::size_t>(cols) * dtype::size_of(type);
  return {"x", rows, cols, type, [&bytes, row](std::int64_t begin, std::int64_t end, std::span<std::byte> out) {
            ASSERT_EQ(out.size(), static_cast<std::size_t>(end - begin) * row);
            std::memcpy(out.data(), bytes.data() + static_cast<std::size_t>(begin) * row, out.size());
          }};
}

WriteBytes append_to(std::vector<std::byte>& out) {
  return [&out](std::span<const std::byte> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); };
}

struct Mode {
  std::string name;
  DType format;
  quant::Granularity scaling;
};

// One case and mode of tensors.h5: codes bit for bit, or, if x is not finite, the error.
void check_case(const test::PlainFile& file, const std::string& name, const Mode& mode, bool power_of_2, int& cast) {
  const std::string prefix = name + "/" + mode.name + (power_of_2 ? "_pow2" : "");
  if (file.find(prefix + "_codes") == nullptr) return;
  SCOPED_TRACE(prefix);
  const h5::Entry& entry = file.at(name + "/x");
  std::vector<std::byte> x(entry.bytes);
  file.read(entry.name, x);
  const StoredMatrix matrix = in_memory(x, entry.shape.at(0), entry.shape.at(1), entry.dtype);
  const CastRule rule{mode.format, mode.scaling, power_of_2};
  std::vector<float> values(x.size() / dtype::size_of(entry.dtype));
  dtype::to_floats(entry.dtype, x.data(), values);
  std::vector<std::byte> codes;
  if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
    EXPECT_THROW(cast_matrix(matrix, rule, append_to(codes)), Error);
    EXPECT_TRUE(codes.empty());
    return;
  }
  const CastResult result = cast_matrix(matrix, rule, append_to(codes));
  const auto wanted = file.read_as<std::uint8_t>(prefix + "_codes");
  ASSERT_EQ(codes.size(), wanted.size());
  EXPECT_EQ(std::memcmp(codes.data(), wanted.data(), codes.size()), 0);
  const auto scales = file.read_as<float>(prefix + "_scale");
  ASSERT_EQ(result.inverse_scales.size(), scales.size());
  for (std::size_t i = 0; i < scales.size(); ++i) EXPECT_EQ(result.inverse_scales[i], 1.0F / scales[i]) << i;
  ++cast;
}

TEST(CastMatrix, EveryReferenceCase) {
  const test::PlainFile file("tests/golden/casts/tensors.h5");
  const Mode modes[] = {{"tensorwise_e4m3", DType::e4m3, quant::Granularity::tensor},
                        {"tensorwise_e5m2", DType::e5m2, quant::Granularity::tensor},
                        {"per_row_e4m3", DType::e4m3, quant::Granularity::row}};
  int cast = 0;
  for (const std::string& name : file.groups()) {
    if (name.empty()) continue;
    for (const Mode& mode : modes) {
      for (const bool power_of_2 : {false, true}) check_case(file, name, mode, power_of_2, cast);
    }
  }
  EXPECT_GE(cast, 100);
}

// Three pieces and a remainder: the result must not depend on the boundaries.
class Pieces : public testing::Test {
 protected:
  static constexpr std::int64_t kRows = 100000, kCols = 32;
  Pieces() : values_(static_cast<std::size_t>(kRows * kCols)) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>((i * 2654435761U) % 2001) - 1000;
    values_.back() = 1792;  // the amax is the last element
  }
  std::vector<float> values_;
};

TEST_F(Pieces, GiveTheSameBits) {
  const std::vector<std::byte> x = bytes_of_floats(values_);
  std::vector<std::byte> codes;
  const CastResult result = cast_matrix(in_memory(x, kRows, kCols, DType::f32), {}, append_to(codes));
  EXPECT_EQ(result.inverse_scales, std::vector<float>{4});
  EXPECT_EQ(result.counts.elements, kRows * kCols);
  ASSERT_EQ(codes.size(), values_.size());
  double signal = 0, noise = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::uint8_t code = dtype::to_e4m3(values_[i] / 4);
    ASSERT_EQ(std::to_integer<std::uint8_t>(codes[i]), code) << i;
    const double v = static_cast<double>(values_[i]), d = v - static_cast<double>(dtype::from_e4m3(code)) * 4;
    signal += v * v;
    noise += d * d;
  }
  EXPECT_EQ(result.signal, signal) << "integers: exact in any order";
  EXPECT_EQ(result.noise, noise);

  std::vector<std::byte> back;
  uncast_matrix(in_memory(codes, kRows, kCols, DType::e4m3), result.inverse_scales,
                factor_grid(quant::Granularity::tensor, kRows, kCols), DType::f32, append_to(back));
  ASSERT_EQ(back.size(), x.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    float v = 0;
    std::memcpy(&v, back.data() + 4 * i, 4);
    ASSERT_EQ(v, dtype::from_e4m3(std::to_integer<std::uint8_t>(codes[i])) * 4) << i;
  }
}

TEST_F(Pieces, ThreadsGiveTheSameBits) {
  for (float& v : values_) v *= 0.1F;
  const std::vector<std::byte> x = bytes_of_floats(values_);
  const CastRule rule{DType::e5m2, quant::Granularity::row, false};
  const int before = omp_get_max_threads();
  std::vector<std::byte> codes[2];
  CastResult results[2];
  for (int i = 0; i < 2; ++i) {
    omp_set_num_threads(i == 0 ? 1 : 3);
    results[i] = cast_matrix(in_memory(x, kRows, kCols, DType::f32), rule, append_to(codes[i]));
  }
  omp_set_num_threads(before);
  EXPECT_EQ(codes[0], codes[1]);
  EXPECT_EQ(results[0].inverse_scales, results[1].inverse_scales);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(results[0].noise), std::bit_cast<std::uint64_t>(results[1].noise));
  EXPECT_EQ(std::bit_cast<std::uint64_t>(results[0].signal), std::bit_cast<std::uint64_t>(results[1].signal));
}

TEST_F(Pieces, ANonFiniteElementIsReportedWithItsRow) {
  values_[static_cast<std::size_t>(99990 * kCols + 3)] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::byte> x = bytes_of_floats(values_);
  std::vector<std::byte> codes;
  EXPECT_EQ(test::error_of([&] { cast_matrix(in_memory(x, kRows, kCols, DType::f32), {}, append_to(codes)); }),
            "x: row 99990 holds NaN or infinity, which has no code");
  EXPECT_TRUE(codes.empty());
}

TEST(CastMatrix, ZerosHaveAFiniteScale) {
  const std::vector<std::byte> x(16 * 16 * 4);
  for (const quant::Granularity scaling : {quant::Granularity::tensor, quant::Granularity::row}) {
    std::vector<std::byte> codes;
    const CastResult result =
        cast_matrix(in_memory(x, 16, 16, DType::f32), {DType::e4m3, scaling, false}, append_to(codes));
    EXPECT_EQ(codes, std::vector<std::byte>(256));
    for (const float s : result.inverse_scales) EXPECT_EQ(s, 1.0F / (448.0F / 1e-12F));
    EXPECT_EQ(result.noise, 0);
  }
}

// Blocks against casts of the whole matrix, of more rows than a piece has; back to values.
TEST(CastMatrix, BlocksEqualACastOfTheWholeMatrix) {
  const std::int64_t rows = 9001, cols = 200;
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(static_cast<float>(i * 7919 % 2003) - 1001.0F, static_cast<int>(i / 997 % 9));
  const std::vector<std::byte> x = bytes_of_floats(values);
  for (const quant::Granularity scaling : {quant::Granularity::block128x128, quant::Granularity::block1x32})
    for (const DType format : {DType::e4m3, DType::e5m2})
      for (const bool power_of_2 : {false, true}) {
        device::Arena arena(std::size_t{16} << 20, device::DeviceType::host);
        const device::Context ctx{.arena = &arena};
        quant::CastCounts counts;
        const auto view = tensor::make_view(values.data(), DType::f32, device::DeviceType::host, {rows, cols});
        const quant::Quantized q = quant::quantize(ctx, view, {format, scaling}, quant::ContractionAxis::last,
                                                   {.power_of_2 = power_of_2, .counts = &counts});
        std::vector<std::byte> codes, back;
        const CastResult result =
            cast_matrix(in_memory(x, rows, cols, DType::f32), {format, scaling, power_of_2}, append_to(codes));
        const FactorGrid grid = factor_grid(scaling, rows, cols);
        uncast_matrix(in_memory(codes, rows, cols, format), result.inverse_scales, grid, DType::f32, append_to(back));
        std::vector<float> decoded(codes.size()), undone(codes.size());
        dtype::to_floats(format, codes.data(), decoded);
        std::memcpy(undone.data(), back.data(), back.size());
        for (std::int64_t i = 0; i < rows * cols; ++i) {
          const std::int64_t r = i / cols, c = i % cols;
          const float inverse =
              q.inverse_scale
                  .as<float>()[r / grid.down * q.inverse_scale.stride[0] + c / grid.along * q.inverse_scale.stride[1]];
          const auto at = static_cast<std::size_t>(i);
          ASSERT_EQ(result.inverse_scales[static_cast<std::size_t>(r / grid.down * grid.cols + c / grid.along)],
                    inverse);
          ASSERT_EQ(decoded[at], dtype::to_float(q.codes.as<dtype::Bf16>()[i]));
          ASSERT_EQ(undone[at], decoded[at] * inverse);
        }
        EXPECT_EQ(result.counts.elements, counts.elements);
        EXPECT_EQ(result.counts.saturated, counts.saturated);
        EXPECT_EQ(result.counts.underflowed, counts.underflowed);
        EXPECT_GT(result.signal, 300 * result.noise) << "25 dB";
      }
}

TEST(CastMatrix, ARowWiderThanAPiece) {
  const std::int64_t cols = (std::int64_t{1} << 20) + 16;
  std::vector<float> values(static_cast<std::size_t>(2 * cols), 1.0F);
  values.back() = 2;
  const std::vector<std::byte> x = bytes_of_floats(values);
  std::vector<std::byte> codes;
  const CastResult result =
      cast_matrix(in_memory(x, 2, cols, DType::f32), {DType::e4m3, quant::Granularity::row, true}, append_to(codes));
  EXPECT_EQ(result.inverse_scales, (std::vector<float>{0x1p-8F, 0x1p-7F}));
  EXPECT_EQ(codes.back(), codes.front());
  EXPECT_EQ(result.noise, 0);
}

}  // namespace
}  // namespace fp8::convert
