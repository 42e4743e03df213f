// NVFP4 casts against those of Transformer Engine's and torchao's references in tests/golden/nvfp4, bit for bit,
// through the file interface of fp8-bench --casts.
#include <gtest/gtest.h>

#include "fp8/hf/safetensors.h"
#include "fp8/probe/casts.h"
#include "fp8/quant/fp4.h"
#include "fp8_test.h"

namespace fp8 {
namespace {

const std::string kGolden = "tests/golden/nvfp4/casts.safetensors";

std::vector<std::byte> bytes_of(const hf::SafetensorsFile& file, const hf::TensorInfo& tensor) {
  std::vector<std::byte> out(static_cast<std::size_t>(tensor.end - tensor.begin));
  file.read(tensor, 0, out);
  return out;
}

float number(const hf::SafetensorsFile& file, const std::string& name) {
  float value = 0;
  file.read_rows_f32(*file.find(name), 0, 1, std::span(&value, 1));
  return value;
}

TEST(GoldenNvfp4, CastsHaveTheBitsOfBothReferences) {
  const test::TemporaryFolder folder;
  const std::string out = folder.path() + "/casts.safetensors";
  probe::write_casts(kGolden, out, false);
  const hf::SafetensorsFile want(kGolden), got(out);
  const std::set<std::string> given = {"x", "w", "bits", "col_bits", "sums", "alpha"};
  std::size_t compared = 0;
  for (const hf::TensorInfo& tensor : want.tensors()) {
    if (given.contains(tensor.name.substr(tensor.name.find('/') + 1))) continue;
    const hf::TensorInfo* const mine = got.find(tensor.name);
    ASSERT_NE(mine, nullptr) << tensor.name;
    ASSERT_EQ(mine->shape, tensor.shape) << tensor.name;
    const auto a = bytes_of(got, *mine), b = bytes_of(want, tensor);
    ASSERT_EQ(a.size(), b.size()) << tensor.name;
    for (std::size_t i = 0; i < b.size(); ++i, ++compared) ASSERT_EQ(a[i], b[i]) << tensor.name << ", byte " << i;
  }
  EXPECT_EQ(got.tensors().size(), 6u * 12);  // cases, results
  EXPECT_GT(compared, 200'000u);
}

TEST(GoldenNvfp4, FactorOfProducts) {
  const hf::SafetensorsFile file(kGolden);
  for (const std::string name : {"normal", "wide", "tiny", "zeros", "ties", "outlier"})
    EXPECT_EQ(quant::fp4_alpha(number(file, name + "/amax"), number(file, name + "/weight_amax")),
              number(file, name + "/alpha"))
        << name;
}

}  // namespace
}  // namespace fp8
