// cuBLASLt's objects for plans of every mode, made without a device and read back. Skipped if the library cannot be
// loaded.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "codes.h"
#include "cublaslt.h"
#include "fp8_test.h"
#include "matrices.h"

namespace fp8::gemm::testing {
namespace {

template <class T, class Get, class Object, class Attribute>
T read(const CublasLt& lt, Get get, Object object, Attribute attribute) {
  T value{};
  std::size_t written = 0;
  lt.check(get(object, attribute, &value, sizeof value, &written), "get");
  return value;
}

class CublasLtTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = test::error_of([] { (void)device_library_version(); });
    if (missing != "no error") GTEST_SKIP() << missing;
  }
  template <class T = std::int32_t>
  static T operation(const LtPlan& p, cublasLtMatmulDescAttributes_t attribute) {
    return read<T>(p.lt, p.lt.desc_get, p.desc.get(), attribute);
  }
  template <class T>
  static std::array<T, 3> layouts(const LtPlan& p, cublasLtMatrixLayoutAttribute_t attribute) {
    std::array<T, 3> of{};
    const std::array objects{p.a.get(), p.b.get(), p.c.get()};
    for (std::size_t i = 0; i < 3; ++i) of.at(i) = read<T>(p.lt, p.lt.layout_get, objects.at(i), attribute);
    return of;
  }
  template <class T>
  static T preference(const LtPlan& p, cublasLtMatmulPreferenceAttributes_t attribute) {
    return read<T>(p.lt, p.lt.preference_get, p.preference.get(), attribute);
  }
  using Extents = std::array<std::int64_t, 3>;
  using Types = std::array<std::uint32_t, 3>;
};

TEST_F(CublasLtTest, Version) { EXPECT_EQ(device_library_version().rfind("cuBLASLt 1", 0), 0u); }

TEST_F(CublasLtTest, PlansOfFloats) {
  const CublasLt lt;
  const Tensor dy(DType::bf16, {6, 8}), x(DType::bf16, {6, 4}), dw(DType::f32, {8, 10}), bias(DType::f32, {4});
  const LtPlan p(lt, describe(plain(dy.view().transposed()), plain(x.view()), dw.view().columns(0, 4),
                              {.accumulate = true, .bias = bias.view()}, 90)
                         .plan);
  EXPECT_EQ(operation(p, CUBLASLT_MATMUL_DESC_TRANSA), CUBLAS_OP_N);
  EXPECT_EQ(operation(p, CUBLASLT_MATMUL_DESC_TRANSB), CUBLAS_OP_T);
  EXPECT_EQ(layouts<std::int64_t>(p, CUBLASLT_MATRIX_LAYOUT_ROWS), (Extents{4, 8, 4}));
  EXPECT_EQ(layouts<std::int64_t>(p, CUBLASLT_MATRIX_LAYOUT_COLS), (Extents{6, 6, 8}));
  EXPECT_EQ(layouts<std::int64_t>(p, CUBLASLT_MATRIX_LAYOUT_LD), (Extents{4, 8, 10}));
  EXPECT_EQ(layouts<std::uint32_t>(p, CUBLASLT_MATRIX_LAYOUT_TYPE), (Types{CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F}));
  EXPECT_EQ(operation(p, CUBLASLT_MATMUL_DESC_EPILOGUE), CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(operation(p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE), CUDA_R_32F);
  EXPECT_EQ(operation<std::int8_t>(p, CUBLASLT_MATMUL_DESC_FAST_ACCUM), 0);
  EXPECT_EQ(preference<std::uint64_t>(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), 32u << 20);
  EXPECT_EQ(preference<std::uint32_t>(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK), 2u)
      << "parts are summed in f32 in the workspace, or K is not split";
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    EXPECT_EQ(preference<std::uint32_t>(p, attribute), 16u);
}

TEST_F(CublasLtTest, PlansOfEveryPairOfScales) {
  const CublasLt lt;
  constexpr auto kScalar = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, kRow = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  constexpr auto kVec128 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  constexpr auto kBlk128 = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  struct Case {
    Sharing a, b;
    cublasLtMatmulMatrixScale_t mode_a, mode_b;  // modes of our A and B
    int capability;
  };
  for (const Case& c : {Case{Sharing::one, Sharing::one, kScalar, kScalar, 90},
                        {Sharing::vector, Sharing::one, kRow, kRow, 90},
                        {Sharing::block1x128, Sharing::block128x128, kVec128, kBlk128, 90},
                        {Sharing::block1x128, Sharing::block1x128, kVec128, kVec128, 90}}) {
    const Codes a = make_codes(DType::e5m2, 16, 160, c.a, 1), b = make_codes(DType::e4m3, 32, 160, c.b, 2);
    const Tensor y(DType::bf16, {16, 32}), bias(DType::bf16, {32});
    const bool fast = c.a == Sharing::one;
    const MatmulOptions options{.fast_accumulation = fast, .bias = bias.view()};
    const LtPlan p(lt, describe(a.operand(false), b.operand(true), y.view(), options, c.capability).plan);
    EXPECT_EQ(operation(p, CUBLASLT_MATMUL_DESC_A_SCALE_MODE), c.mode_b) << "the library's A is our B";
    EXPECT_EQ(operation(p, CUBLASLT_MATMUL_DESC_B_SCALE_MODE), c.mode_a);
    EXPECT_EQ(operation(p, CUBLASLT_MATMUL_DESC_TRANSA), CUBLAS_OP_T);
    EXPECT_EQ(operation(p, CUBLASLT_MATMUL_DESC_TRANSB), CUBLAS_OP_N);
    EXPECT_EQ(layouts<std::uint32_t>(p, CUBLASLT_MATRIX_LAYOUT_TYPE),
              (Types{CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16BF}));
    EXPECT_EQ(layouts<std::int64_t>(p, CUBLASLT_MATRIX_LAYOUT_ROWS)[0], 160);
    EXPECT_EQ(layouts<std::int64_t>(p, CUBLASLT_MATRIX_LAYOUT_COLS)[0], 32);
    EXPECT_EQ(layouts<std::int64_t>(p, CUBLASLT_MATRIX_LAYOUT_LD)[1], 160);
    EXPECT_EQ(operation(p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE), CUDA_R_16BF);
    EXPECT_EQ(operation<std::int8_t>(p, CUBLASLT_MATMUL_DESC_FAST_ACCUM), fast ? 1 : 0);
  }
}

// Two GEMMs of experts with 3 and 40 rows, bf16 and FP8.
TEST_F(CublasLtTest, PlansOfSeveralGemms) {
  const CublasLt lt;
  if (lt.grouped_layout_create == nullptr) GTEST_SKIP() << lt.name() << " has no grouped GEMMs";
  std::vector<DeviceCall> floats, codes;
  for (const std::int64_t rows : {3, 40}) {
    const Tensor x(DType::bf16, {rows, 64}), w(DType::bf16, {32, 64}), y(DType::bf16, {rows, 32});
    floats.push_back(describe(plain(x.view()), plain(w.view().transposed()), y.view(), {}, 90));
    const Codes a = make_codes(DType::e4m3, rows, 64, Sharing::one, 1),
                b = make_codes(DType::e4m3, 32, 64, Sharing::one, 2);
    codes.push_back(describe(a.operand(false), b.operand(true), y.view(), {.fast_accumulation = true}, 90));
  }
  std::vector<std::byte> memory(GroupArrays::bytes(64));
  const GroupArrays arrays{memory.data(), 64};
  const auto address = [](const void* p) { return reinterpret_cast<std::uint64_t>(p); };
  for (const bool fp8 : {false, true}) {
    const LtPlan p(lt, *together(fp8 ? codes : floats), arrays);
    EXPECT_EQ(p.refusal, "");
    EXPECT_EQ(layouts<std::int32_t>(p, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT), (std::array<std::int32_t, 3>{2, 2, 2}));
    for (int extent = 0; extent < 3; ++extent) {
      const auto attribute = static_cast<cublasLtMatrixLayoutAttribute_t>(9 + extent);  // rows, columns, strides
      EXPECT_EQ(layouts<std::uint64_t>(p, attribute),
                (std::array<std::uint64_t, 3>{address(arrays.extents(extent)), address(arrays.extents(3 + extent)),
                                              address(arrays.extents(6 + extent))}));
    }
    EXPECT_EQ(preference<std::int64_t>(p, kAverageRows), 32);
    EXPECT_EQ(preference<std::int64_t>(p, kAverageColumns), 32) << "22 rows on average, up to a power of two";
    EXPECT_EQ(preference<std::int64_t>(p, kAverageContraction), 64);
    EXPECT_EQ(operation(p, CUBLASLT_MATMUL_DESC_TRANSA), CUBLAS_OP_T);
    EXPECT_EQ(operation(p, CUBLASLT_MATMUL_DESC_POINTER_MODE), CUBLASLT_POINTER_MODE_DEVICE);
    EXPECT_EQ(operation<std::int8_t>(p, CUBLASLT_MATMUL_DESC_FAST_ACCUM), fp8 ? 1 : 0);
    if (!fp8) continue;
    EXPECT_EQ(operation(p, CUBLASLT_MATMUL_DESC_A_SCALE_MODE), kScaleOfEach);
    EXPECT_EQ(operation(p, CUBLASLT_MATMUL_DESC_B_SCALE_MODE), kScaleOfEach);
  }
}

}  // namespace
}  // namespace fp8::gemm::testing
