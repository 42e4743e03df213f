// cuBLASLt's own objects, as far as they go without a device: made for plans of every mode and read back. Skipped where
// the library cannot be loaded.
#include <gtest/gtest.h>

#include <string>

#include "codes.h"
#include "cuda.h"
#include "fp8_test.h"
#include "matrices.h"

namespace fp8::gemm::testing {
namespace {

// Numbers of library_types.h, cublas_api.h and cublasLt.h, written down once more: this test includes none of them.
constexpr int kF32 = 0, kBf16 = 14, kE4m3 = 28, kE5m2 = 29, kOpN = 0, kOpT = 1;
constexpr int kScalar = 0, kUe8m0 = 2, kOuter = 3, kVec128 = 4, kBlk128 = 5;

class CublasLtTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = test::error_of([] { (void)device_library_version(); });
    if (missing != "no error") GTEST_SKIP() << missing;
  }
};

TEST_F(CublasLtTest, TellsItsVersion) { EXPECT_EQ(device_library_version().rfind("cuBLASLt 1", 0), 0u); }

TEST_F(CublasLtTest, TakesPlansOfNumbers) {
  const Tensor dy(DType::bf16, {6, 8}), x(DType::bf16, {6, 4}), dw(DType::f32, {8, 10}), bias(DType::f32, {4});
  const DevicePlan plan = describe(plain(dy.view().transposed()), plain(x.view()), dw.view().columns(0, 4),
                                   {.accumulate = true, .bias = bias.view()}, 90)
                              .plan;
  const BuiltPlan built = build_for_test(plan);
  EXPECT_EQ(built.transposed_a, kOpN);
  EXPECT_EQ(built.transposed_b, kOpT);
  const std::int64_t rows[] = {4, 8, 4}, columns[] = {6, 6, 8}, stride[] = {4, 8, 10};
  const int type[] = {kBf16, kBf16, kF32};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(built.rows[i], rows[i]) << i;
    EXPECT_EQ(built.columns[i], columns[i]) << i;
    EXPECT_EQ(built.stride[i], stride[i]) << i;
    EXPECT_EQ(built.type[i], type[i]) << i;
  }
  EXPECT_EQ(built.epilogue, 4) << "bias";
  EXPECT_EQ(built.bias_type, kF32);
  EXPECT_EQ(built.fast_accumulation, 0);
  EXPECT_EQ(built.workspace, 32u << 20);
  EXPECT_EQ(built.reductions, 2u) << "parts are summed in f32 in the workspace, or there are none";
  for (const std::uint32_t alignment : built.alignment) EXPECT_EQ(alignment, 16u);
}

TEST_F(CublasLtTest, TakesPlansOfEveryPairOfScales) {
  struct Case {
    Sharing a, b;
    int mode_a, mode_b;  // of our A and B
    int capability;
  };
  for (const Case& c : {Case{Sharing::one, Sharing::one, kScalar, kScalar, 90},
                        {Sharing::vector, Sharing::one, kOuter, kOuter, 90},
                        {Sharing::row128, Sharing::square128, kVec128, kBlk128, 90},
                        {Sharing::row128, Sharing::row128, kVec128, kVec128, 90},
                        {Sharing::row32, Sharing::row32, kUe8m0, kUe8m0, 100}}) {
    const Codes a = make_codes(DType::e5m2, 16, 160, c.a, 1), b = make_codes(DType::e4m3, 32, 160, c.b, 2);
    const Tensor y(DType::bf16, {16, 32}), bias(DType::bf16, {32});
    const bool fast = c.a == Sharing::one;
    const MatmulOptions options{.fast_accumulation = fast, .bias = bias.view()};
    const BuiltPlan built =
        build_for_test(describe(a.operand(false), b.operand(true), y.view(), options, c.capability).plan);
    EXPECT_EQ(built.scale_mode_a, c.mode_b) << "the library's A is our B";
    EXPECT_EQ(built.scale_mode_b, c.mode_a);
    EXPECT_EQ(built.transposed_a, kOpT);
    EXPECT_EQ(built.transposed_b, kOpN);
    EXPECT_EQ(built.type[0], kE4m3);
    EXPECT_EQ(built.type[1], kE5m2);
    EXPECT_EQ(built.type[2], kBf16);
    EXPECT_EQ(built.rows[0], 160);
    EXPECT_EQ(built.columns[0], 32);
    EXPECT_EQ(built.stride[1], 160);
    EXPECT_EQ(built.bias_type, kBf16);
    EXPECT_EQ(built.fast_accumulation, fast ? 1 : 0);
  }
}

}  // namespace
}  // namespace fp8::gemm::testing
