// Errors and shapes of write_gemms(). Values are compared with references in tests/golden.
#include "fp8/probe/gemms.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "fp8/h5/reader.h"
#include "fp8/h5/writer.h"
#include "fp8_test.h"

namespace fp8::probe {
namespace {

using dtype::DType;

struct Codes {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::u8;
};

class Gemms : public ::testing::Test {
 protected:
  // Writes zeros and returns the message of write_gemms() without the path; checks that an error leaves no output.
  std::string refusal(const std::vector<Codes>& datasets) {
    std::filesystem::remove(out_);
    h5::Writer writer(in_);
    for (const Codes& d : datasets) {
      std::size_t bytes = size_of(d.dtype);
      for (const std::int64_t extent : d.shape) bytes *= static_cast<std::size_t>(extent);
      writer.dataset(d.name, d.dtype, d.shape, std::vector<std::byte>(bytes));
    }
    writer.finish();
    const std::string message = test::error_of([&] { write_gemms(in_, out_, true, gemm::Accumulation::hopper); });
    EXPECT_EQ(std::filesystem::exists(out_), message == "no error");
    return message.rfind(in_ + ": ", 0) == 0 ? message.substr(in_.size() + 2) : message;
  }
  test::TemporaryFolder folder_;
  std::string in_ = folder_.path() + "/in.h5", out_ = folder_.path() + "/out.h5";
};

TEST_F(Gemms, InvalidOperandsAreErrors) {
  const std::string formats = "codes need an outer group named by their formats, such as e4m3_e4m3 or e5m2_e4m3";
  EXPECT_EQ(refusal({{"e4m3_e4m3/x/c", {2, 2}}}), "no group has datasets a and b");
  EXPECT_EQ(refusal({{"e4m3_e4m3/x/a", {2, 2}}}), "/e4m3_e4m3/x/b: there is no such dataset");
  EXPECT_EQ(refusal({{"e4m3_e4m3/x/a", {2, 2}}, {"e4m3_e4m3/x/b", {2, 3}}}), "/e4m3_e4m3/x: K is 2 in a, 3 in b");
  EXPECT_EQ(refusal({{"e4m3_e4m3/x/a", {4}}, {"e4m3_e4m3/x/b", {2, 3}}}),
            "/e4m3_e4m3/x/a: codes are uint8 with two dimensions");
  EXPECT_EQ(refusal({{"e4m3_e4m3/x/a", {2, 3}}, {"e4m3_e4m3/x/b", {2, 3}, DType::f32}}),
            "/e4m3_e4m3/x/b: codes are uint8 with two dimensions");
  for (const std::string outer : {"e4m3", "e4m3_", "_e4m3", "e4m3_bf16", "e4m3_e4m3_e4m3"})
    EXPECT_EQ(refusal({{outer + "/x/a", {2, 2}}, {outer + "/x/b", {2, 2}}}), "/" + outer + "/x: " + formats);
  EXPECT_EQ(refusal({{"e4m3_e4m3/a", {2, 2}}, {"e4m3_e4m3/b", {2, 2}}}), "/e4m3_e4m3: " + formats);
  EXPECT_EQ(refusal({{"e4m3_e4m3/x/a", {std::int64_t{1} << 40, 0}}, {"e4m3_e4m3/x/b", {3, 0}}}),
            "/e4m3_e4m3/x: 1099511627776 x 3 sums, 268435456 at most");
}

TEST_F(Gemms, ShapesOfEverySize) {
  EXPECT_EQ(refusal({{"e5m2_e4m3/x/a", {3, 5}},
                     {"e5m2_e4m3/x/b", {2, 5}},
                     {"e4m3_e5m2/none/a", {3, 0}},
                     {"e4m3_e5m2/none/b", {2, 0}},
                     {"e4m3_e4m3/empty/a", {0, 7}},
                     {"e4m3_e4m3/empty/b", {2, 7}}}),
            "no error");
  const h5::Reader out(out_);
  for (const std::string sums : {"fast", "slow", "f32"}) {
    EXPECT_EQ(out.at("e5m2_e4m3/x/" + sums).shape, (std::vector<std::int64_t>{3, 2}));
    EXPECT_EQ(out.read_as<float>("e5m2_e4m3/x/" + sums), std::vector<float>(6));
    EXPECT_EQ(out.read_as<float>("e4m3_e5m2/none/" + sums), std::vector<float>(6));
    EXPECT_EQ(out.at("e4m3_e4m3/empty/" + sums).shape, (std::vector<std::int64_t>{0, 2}));
    EXPECT_EQ(out.at("e4m3_e4m3/empty/" + sums).dtype, DType::f32);
  }
  EXPECT_EQ(out.list().size(), 9u);
}

}  // namespace
}  // namespace fp8::probe
