// Emulated sums of tensor cores against those of an H100 and an RTX 4060 in tests/golden/accumulate, bit for bit,
// through the file interface of fp8-bench --gemms.
#include <gtest/gtest.h>

#include "fp8/h5/reader.h"
#include "fp8/probe/gemms.h"
#include "fp8_test.h"
#include "same.h"

namespace fp8 {
namespace {

using golden::same;

void check_sums(const std::string& chip, gemm::Accumulation accumulation) {
  const test::TemporaryFolder folder;
  const std::string expected = "tests/golden/accumulate/" + chip + ".h5", out = folder.path() + "/sums.h5";
  probe::write_gemms(expected, out, false, accumulation);
  const h5::Reader want(expected), got(out);
  std::size_t compared = 0;
  for (const h5::Entry& entry : want.list()) {
    if (!entry.name.ends_with("/fast") && !entry.name.ends_with("/slow")) continue;
    const auto a = got.read_as<float>(entry.name), b = want.read_as<float>(entry.name);
    ASSERT_EQ(got.at(entry.name).shape, entry.shape) << entry.name;
    for (std::size_t i = 0; i < b.size(); ++i, ++compared)
      ASSERT_TRUE(same(a[i], b[i])) << chip << " " << entry.name << "[" << i << "]: " << a[i] << ", want " << b[i];
  }
  EXPECT_EQ(compared, 2u * 8 * 4 * 2 * 7 * 19);  // formats, kinds, K, fast and slow, M, N
}

TEST(GoldenAccumulate, MatchesAnH100) { check_sums("hopper", gemm::Accumulation::hopper); }
TEST(GoldenAccumulate, MatchesAnRtx4060) { check_sums("ada", gemm::Accumulation::ada); }

TEST(GoldenAccumulate, ChipsDiffer) {
  const test::TemporaryFolder folder;
  const std::string expected = "tests/golden/accumulate/hopper.h5", out = folder.path() + "/sums.h5";
  probe::write_gemms(expected, out, false, gemm::Accumulation::ada);
  const h5::Reader want(expected), got(out);
  const std::string name = "e4m3_e4m3/normal_400/fast";
  EXPECT_NE(got.read_as<float>(name), want.read_as<float>(name));
}

}  // namespace
}  // namespace fp8
