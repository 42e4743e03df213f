// Emulated sums of tensor cores against those of an H100 and an RTX 4060 in tests/golden/accumulate, bit for bit,
// through the file interface of fp8-bench --gemms.
#include <gtest/gtest.h>

#include "fp8/hf/safetensors.h"
#include "fp8/probe/gemms.h"
#include "fp8_test.h"
#include "same.h"

namespace fp8 {
namespace {

using golden::same;

std::string golden_file(const std::string& chip) { return "tests/golden/accumulate/" + chip + ".safetensors"; }

// The sums of a chip's codes, which stay in a folder.
struct Sums {
  test::TemporaryFolder folder;
  hf::SafetensorsFile file;

  Sums(const std::string& chip, gemm::Accumulation accumulation) : file(made(chip, accumulation)) {}

 private:
  std::string made(const std::string& chip, gemm::Accumulation accumulation) const {
    const std::string out = folder.path() + "/sums.safetensors";
    probe::write_gemms(golden_file(chip), out, false, accumulation);
    return out;
  }
};

std::vector<float> values(const hf::SafetensorsFile& file, const hf::TensorInfo& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.elements()));
  file.read_rows_f32(tensor, 0, tensor.shape.at(0), out);
  return out;
}

void check_sums(const std::string& chip, gemm::Accumulation accumulation) {
  const Sums got(chip, accumulation);
  const hf::SafetensorsFile want(golden_file(chip));
  std::size_t compared = 0;
  for (const hf::TensorInfo& tensor : want.tensors()) {
    if (!tensor.name.ends_with("/fast") && !tensor.name.ends_with("/slow")) continue;
    const hf::TensorInfo* const mine = got.file.find(tensor.name);
    ASSERT_NE(mine, nullptr) << tensor.name;
    ASSERT_EQ(mine->shape, tensor.shape) << tensor.name;
    const auto a = values(got.file, *mine), b = values(want, tensor);
    for (std::size_t i = 0; i < b.size(); ++i, ++compared)
      ASSERT_TRUE(same(a[i], b[i])) << chip << " " << tensor.name << "[" << i << "]: " << a[i] << ", want " << b[i];
  }
  EXPECT_EQ(compared, 2u * 8 * 4 * 2 * 7 * 19);  // formats, kinds, K, fast and slow, M, N
}

TEST(GoldenAccumulate, MatchesAnH100) { check_sums("hopper", gemm::Accumulation::hopper); }
TEST(GoldenAccumulate, MatchesAnRtx4060) { check_sums("ada", gemm::Accumulation::ada); }

TEST(GoldenAccumulate, ChipsDiffer) {
  const Sums got("hopper", gemm::Accumulation::ada);
  const hf::SafetensorsFile want(golden_file("hopper"));
  const std::string name = "e4m3_e4m3/normal_400/fast";
  EXPECT_NE(values(got.file, *got.file.find(name)), values(want, *want.find(name)));
}

}  // namespace
}  // namespace fp8
