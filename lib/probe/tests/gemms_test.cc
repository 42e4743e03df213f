// Errors and shapes of write_gemms(). Values are compared with references in tests/golden.
#include "fp8/probe/gemms.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "fp8/hf/safetensors.h"
#include "fp8_test.h"

namespace fp8::probe {
namespace {

using dtype::DType;

class Gemms : public ::testing::Test {
 protected:
  // Writes zeros and returns the message of write_gemms() without the path; checks that an error leaves no output.
  std::string refusal(const std::vector<hf::TensorSpec>& tensors) {
    std::filesystem::remove(out_);
    std::filesystem::remove(in_);
    hf::SafetensorsWriter writer(in_, tensors);
    for (const hf::TensorSpec& t : tensors) {
      std::size_t bytes = size_of(t.dtype);
      for (const std::int64_t extent : t.shape) bytes *= static_cast<std::size_t>(extent);
      writer.begin(t.name);
      writer.write(std::vector<std::byte>(bytes));
    }
    writer.finish();
    const std::string message = test::error_of([&] { write_gemms(in_, out_, true, gemm::Accumulation::hopper); });
    EXPECT_EQ(std::filesystem::exists(out_), message == "no error");
    return message.rfind(in_ + ": ", 0) == 0 ? message.substr(in_.size() + 2) : message;
  }
  test::TemporaryFolder folder_;
  std::string in_ = folder_.path() + "/in.safetensors", out_ = folder_.path() + "/out.safetensors";
};

TEST_F(Gemms, InvalidOperandsAreErrors) {
  const DType e4m3 = DType::e4m3;
  const std::string codes = "codes are F8_E4M3 or F8_E5M2 with two dimensions";
  EXPECT_EQ(refusal({{"x/c", e4m3, {2, 2}}}), "no tensors NAME/a and NAME/b");
  EXPECT_EQ(refusal({{"a", e4m3, {2, 2}}, {"b", e4m3, {2, 2}}}), "no tensors NAME/a and NAME/b");
  EXPECT_EQ(refusal({{"x/a", e4m3, {2, 2}}}), "tensor \"x/b\": there is no such tensor");
  EXPECT_EQ(refusal({{"x/a", e4m3, {2, 2}}, {"x/b", e4m3, {2, 3}}}), "tensor \"x/b\": K is 3, 2 in a");
  EXPECT_EQ(refusal({{"x/a", e4m3, {4}}, {"x/b", e4m3, {2, 3}}}), "tensor \"x/a\": " + codes);
  for (const DType other : {DType::u8, DType::f32, DType::e8m0})
    EXPECT_EQ(refusal({{"x/a", e4m3, {2, 3}}, {"x/b", other, {2, 3}}}), "tensor \"x/b\": " + codes);
  EXPECT_EQ(refusal({{"x/a", e4m3, {std::int64_t{1} << 40, 0}}, {"x/b", e4m3, {3, 0}}}),
            "tensor \"x/a\": 1099511627776 x 3 sums, 268435456 at most");
}

TEST_F(Gemms, ShapesOfEverySize) {
  EXPECT_EQ(refusal({{"x/y/a", DType::e5m2, {3, 5}},
                     {"x/y/b", DType::e4m3, {2, 5}},
                     {"none/a", DType::e4m3, {3, 0}},
                     {"none/b", DType::e5m2, {2, 0}},
                     {"empty/a", DType::e4m3, {0, 7}},
                     {"empty/b", DType::e4m3, {2, 7}}}),
            "no error");
  const hf::SafetensorsFile out(out_);
  for (const std::string sums : {"/fast", "/slow", "/f32"}) {
    for (const std::string name : {"x/y", "none"}) {
      const hf::TensorInfo* const tensor = out.find(name + sums);
      ASSERT_NE(tensor, nullptr) << name;
      EXPECT_EQ(tensor->shape, (std::vector<std::int64_t>{3, 2}));
      std::vector<float> values(6, 1.0F);
      out.read_rows_f32(*tensor, 0, 3, values);
      EXPECT_EQ(values, std::vector<float>(6));
    }
    ASSERT_NE(out.find("empty" + sums), nullptr);
    EXPECT_EQ(out.find("empty" + sums)->shape, (std::vector<std::int64_t>{0, 2}));
    EXPECT_EQ(out.find("empty" + sums)->dtype, "F32");
  }
  EXPECT_EQ(out.tensors().size(), 9u);
}

}  // namespace
}  // namespace fp8::probe
