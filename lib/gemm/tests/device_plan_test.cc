// Plans for cuBLASLt: plain loops that compute a plan by the library's manual give the requested GEMM for all layouts,
// scales, biases and accumulation; unsupported calls are refused with the reason.
#include "device_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "codes.h"
#include "epilogue.h"
#include "fp8_test.h"
#include "matrices.h"

namespace fp8::gemm::testing {
namespace {

constexpr int kHopper = 90;
constexpr const char* kNothing = "no error";

float element(const Factor& f, const void* data, std::int64_t at) {
  switch (f.format) {
    case DType::e4m3:
      return dtype::from_e4m3(static_cast<const std::uint8_t*>(data)[at]);
    case DType::e5m2:
      return dtype::from_e5m2(static_cast<const std::uint8_t*>(data)[at]);
    case DType::bf16:
      return dtype::to_float(static_cast<const Bf16*>(data)[at]);
    default:
      return static_cast<const float*>(data)[at];
  }
}

// Scale of element (outer, k), of `outers` in all.
float scale(const Factor& f, const void* data, std::int64_t outers, std::int64_t ks, std::int64_t outer,
            std::int64_t k) {
  if (f.scaling == Scaling::none || data == nullptr) return 1.0f;
  const Sharing how = f.scaling == Scaling::scalar_32f      ? Sharing::one
                      : f.scaling == Scaling::outer_vec_32f ? Sharing::vector
                      : f.scaling == Scaling::vec128_32f    ? Sharing::block1x128
                                                            : Sharing::block128x128;
  return static_cast<const float*>(data)[scale_at(how, outers, ks, outer, k)];
}

struct Memory {
  const void *a, *b, *scale_a, *scale_b, *bias;  // pointers for the library's A and B
  void* c;
};

// D = alpha scale_A scale_B op(A) op(B) + beta C + bias, column-major.
void library(const DevicePlan& p, const Memory& at) {
  EXPECT_EQ(p.a.transposed ? p.a.rows : p.a.columns, p.k);
  EXPECT_EQ(p.a.transposed ? p.a.columns : p.a.rows, p.m);
  EXPECT_EQ(p.b.transposed ? p.b.columns : p.b.rows, p.k);
  EXPECT_EQ(p.b.transposed ? p.b.rows : p.b.columns, p.n);
  EXPECT_GE(p.c_stride, p.m);
  for (const Factor* f : {&p.a, &p.b}) EXPECT_GE(f->stride, f->rows);
  for (std::int64_t j = 0; j < p.n; ++j) {
    for (std::int64_t i = 0; i < p.m; ++i) {
      float sum = 0;
      for (std::int64_t l = 0; l < p.k; ++l) {
        const float x = element(p.a, at.a, p.a.transposed ? i * p.a.stride + l : l * p.a.stride + i);
        const float y = element(p.b, at.b, p.b.transposed ? l * p.b.stride + j : j * p.b.stride + l);
        sum += x * scale(p.a, at.scale_a, p.m, p.k, i, l) * (y * scale(p.b, at.scale_b, p.n, p.k, j, l));
      }
      if (p.bias && p.bias_type == DType::f32) sum += static_cast<const float*>(at.bias)[i];
      if (p.bias && p.bias_type == DType::bf16) sum += dtype::to_float(static_cast<const Bf16*>(at.bias)[i]);
      const std::int64_t to = j * p.c_stride + i;
      if (p.c == DType::bf16) {
        static_cast<Bf16*>(at.c)[to] = dtype::to_bf16(sum);
      } else {
        auto* c = static_cast<float*>(at.c) + to;
        *c = p.accumulate ? sum + *c : sum;
      }
    }
  }
}

std::vector<float> repeated(const Operand& o, std::int64_t n) {
  return std::vector<float>(static_cast<std::size_t>(n),
                            o.inverse_scale.empty() ? 1.0f : o.inverse_scale.as<float>()[0]);
}

// A call of Gemm in cublaslt.cu, on the host.
DeviceCall execute(const Operand& a, const Operand& b, const View& c, const MatmulOptions& options,
                   bool after = false) {
  const DeviceCall call = describe(a, b, c, options, kHopper, after);
  const auto broadcast_a = repeated(a, call.broadcast_a), broadcast_b = repeated(b, call.broadcast_b);
  std::vector<float> sums(call.sums_bytes() / sizeof(float));
  EXPECT_EQ(call.finish, !sums.empty());
  const auto scale = [&](const Operand& o, const std::vector<float>& broadcast) -> const void* {
    return call.after ? nullptr : broadcast.empty() ? o.inverse_scale.data : broadcast.data();
  };
  if (call.plan.k > 0) {
    library(call.plan, {.a = b.matrix.data,
                        .b = a.matrix.data,
                        .scale_a = scale(b, broadcast_b),
                        .scale_b = scale(a, broadcast_a),
                        .bias = options.bias.data,
                        .c = call.finish ? sums.data() : c.data});
  }
  if (!call.finish) return call;
  finish(sums.data(), c.shape[1], epilogue_of(call, a, b, options), c);
  return call;
}

constexpr Size kPlanSizes[] = {{1, 1, 1}, {1, 7, 5}, {5, 1, 3}, {3, 5, 1}, {17, 33, 20}, {4, 2, 0}};

TEST(DevicePlan, FloatsInEveryLayoutAndSize) {
  for (const auto& [in, out] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}}) {
    for (const Size s : kPlanSizes) {
      for (const Layout la : kLayouts) {
        for (const Layout lb : kLayouts) {
          for (const bool accumulate : {false, true}) {
            if (accumulate && out == DType::bf16) continue;
            const Matrix a = integers(in, s.m, s.k, la, 1), b = integers(in, s.k, s.n, lb, 2);
            const Matrix c = integers(out, s.m, s.n, Layout::wide, 3),
                         before = integers(out, s.m, s.n, Layout::wide, 3);
            const MatmulOptions options{.accumulate = accumulate};
            const DeviceCall call = execute(plain(a.view), plain(b.view), c.view, options);
            EXPECT_EQ(call.finish, s.k == 0);
            EXPECT_FALSE(first_difference(c.view, expected(plain(a.view), plain(b.view), before.view, options)))
                << s.m << ' ' << s.n << ' ' << s.k << ' ' << static_cast<int>(la) << static_cast<int>(lb);
          }
        }
      }
    }
  }
}

TEST(DevicePlan, TransposesOfForwardDgradAndWgrad) {
  const Tensor x(DType::bf16, {6, 4}), w(DType::bf16, {8, 4}), dy(DType::bf16, {6, 8}), dw(DType::f32, {8, 4});
  const DevicePlan forward = describe(plain(x.view()), plain(w.view().transposed()), dy.view(), {}, kHopper).plan;
  EXPECT_TRUE(forward.a.transposed) << "TN: w is contiguous along K";
  EXPECT_FALSE(forward.b.transposed);
  const DevicePlan dgrad = describe(plain(dy.view()), plain(w.view()), x.view(), {}, kHopper).plan;
  EXPECT_FALSE(dgrad.a.transposed);
  EXPECT_FALSE(dgrad.b.transposed);
  const DevicePlan wgrad = describe(plain(dy.view().transposed()), plain(x.view()), dw.view(), {}, kHopper).plan;
  EXPECT_FALSE(wgrad.a.transposed);
  EXPECT_TRUE(wgrad.b.transposed);
  EXPECT_EQ(wgrad.m, 4);
  EXPECT_EQ(wgrad.n, 8);
  EXPECT_EQ(wgrad.k, 6);
}

TEST(DevicePlan, LibraryAddsTheBiasOnlyInItsType) {
  for (const DType in : {DType::f32, DType::bf16}) {
    for (const DType out : {DType::f32, DType::bf16}) {
      for (const DType type : {DType::f32, DType::bf16}) {
        for (const bool accumulate : {false, true}) {
          if (accumulate && out == DType::bf16) continue;
          const Matrix a = integers(in, 5, 9, Layout::rows, 1), b = integers(in, 9, 6, Layout::rows, 2);
          const Matrix c = integers(out, 5, 6, Layout::wide, 3), before = integers(out, 5, 6, Layout::wide, 3);
          const Matrix bias = integers(type, 1, 6, Layout::rows, 4);
          const MatmulOptions options{.accumulate = accumulate, .bias = bias.view.reshaped({6})};
          const DeviceCall call = execute(plain(a.view), plain(b.view), c.view, options);
          EXPECT_EQ(call.plan.bias, type == out && !(in == DType::f32 && out == DType::bf16));
          EXPECT_EQ(call.finish, !call.plan.bias);
          EXPECT_FALSE(first_difference(c.view, expected(plain(a.view), plain(b.view), before.view, options)));
        }
      }
    }
  }
  for (const DType out : {DType::f32, DType::bf16}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const Codes a = make_codes(DType::e4m3, 3, 16, Sharing::one, 1),
                  b = make_codes(DType::e4m3, 8, 16, Sharing::one, 2);
      const Tensor c(out, {3, 8}), bias(type, {8});
      const DeviceCall call = describe(a.operand(false), b.operand(true), c.view(), {.bias = bias.view()}, kHopper);
      EXPECT_EQ(call.plan.bias, type == DType::bf16) << "with FP8 the bias is bfloat16 for every C";
    }
  }
}

TEST(DevicePlan, ScalesOfFloatsAreAppliedAfterTheSum) {
  const Matrix a = integers(DType::bf16, 5, 9, Layout::rows, 1), b = integers(DType::bf16, 9, 6, Layout::rows, 2);
  const Tensor c(DType::bf16, {5, 6}), one = odd_scales(1, 3), many = odd_scales(6, 5);
  const Operand left{a.view, DType::e4m3, one.view()}, right{b.view, DType::e5m2, many.view()};
  const DeviceCall call = execute(left, right, c.view(), {});
  EXPECT_TRUE(call.finish);
  EXPECT_EQ(call.plan.a.scaling, Scaling::none) << "the library refuses scales of operands that are not FP8";
  EXPECT_FALSE(first_difference(c.view(), expected(left, right, c.view(), {})));
}

TEST(DevicePlan, CodesWithEveryPairOfScales) {
  for (const auto& [sa, sb] : kSharingPairs) {
    for (const Size s : {Size{16, 24, 16}, {8, 136, 48}, {200, 8, 300}, {24, 16, 129}, {1, 8, 1}}) {
      if (sa == Sharing::block128x128 && s.m % 8 != 0) continue;
      for (const auto& [fa, fb] :
           {std::pair{DType::e4m3, DType::e4m3}, {DType::e5m2, DType::e4m3}, {DType::e4m3, DType::e5m2}}) {
        const Codes a = make_codes(fa, s.m, s.k, sa, 1), b = make_codes(fb, s.n, s.k, sb, 2);
        const Tensor memory(DType::f32, {s.m, s.n + 8});
        const View c = memory.view().columns(4, s.n + 4);
        const DeviceCall call = execute(a.operand(false), b.operand(true), c, {.accumulate = true});
        const bool more_rows = sa == Sharing::block1x128 && s.m % 8 != 0;
        EXPECT_EQ(call.finish, more_rows);
        EXPECT_EQ(call.plan.n, more_rows ? 8 : s.m) << "the library writes a multiple of 8 rows";
        EXPECT_TRUE(call.plan.a.transposed && !call.plan.b.transposed) << "TN";
        EXPECT_EQ(call.plan.k % 16, 0);
        EXPECT_FALSE(first_difference(c, product(a, b)))
            << static_cast<int>(sa) << static_cast<int>(sb) << ' ' << s.m << ' ' << s.n << ' ' << s.k;
      }
    }
  }
}

TEST(DevicePlan, RowScalesAreAppliedAfterTheSumIfTheLibraryHasNone) {
  for (const auto& [sa, sb] : kSharingPairs) {
    const bool rows = sa == Sharing::vector || sb == Sharing::vector;
    for (const DType type : {DType::f32, DType::bf16}) {
      const Codes a = make_codes(DType::e5m2, 17, 35, sa, 1), b = make_codes(DType::e4m3, 24, 35, sb, 2);
      const Tensor c(type, {17, 24}), bias(DType::bf16, {24});
      if (!rows) {
        if (sa != Sharing::one) continue;
        EXPECT_FALSE(describe(a.operand(false), b.operand(true), c.view(), {}, kHopper, true).after);
        continue;
      }
      for (const int capability : {89, 100, 120})
        EXPECT_TRUE(describe(a.operand(false), b.operand(true), c.view(), {}, capability).after) << capability;
      const MatmulOptions options{.accumulate = type == DType::f32, .bias = bias.view()};
      const DeviceCall call = execute(a.operand(false), b.operand(true), c.view(), options, true);
      EXPECT_TRUE(call.after && call.finish && !call.plan.bias && !call.plan.accumulate);
      EXPECT_EQ(call.plan.a.scaling, Scaling::scalar_32f);
      EXPECT_EQ(call.broadcast_bytes(), 0u);
      EXPECT_FALSE(first_difference(c.view(), product(a, b))) << static_cast<int>(sa) << static_cast<int>(sb);
    }
  }
}

class Refusals : public ::testing::Test {
 protected:
  std::string of(const Operand& a, const Operand& b, const MatmulOptions& options = {}, int capability = kHopper) {
    const Tensor c(DType::bf16, {a.matrix.shape[0], b.matrix.shape[1]});
    return test::error_of([&] { describe(a, b, c.view(), options, capability); });
  }
  std::string of(Sharing a, Sharing b, int capability, const MatmulOptions& options = {}) {
    return of(make_codes(DType::e4m3, 16, 64, a, 1).operand(false), make_codes(DType::e4m3, 16, 64, b, 2).operand(true),
              options, capability);
  }
};

TEST_F(Refusals, NameTheChip) {
  EXPECT_EQ(of(Sharing::one, Sharing::one, 80),
            "matrix multiply: FP8 codes need compute capability 8.9 or later, and this chip has 8.0");
  EXPECT_EQ(of(Sharing::one, Sharing::one, 89), kNothing) << "tensor scales from 8.9 on";
  EXPECT_EQ(of(Sharing::one, Sharing::one, 100), kNothing);
  EXPECT_EQ(of(Sharing::one, Sharing::vector, 100), kNothing) << "applied to the sums";
  EXPECT_EQ(of(Sharing::vector, Sharing::vector, 89), kNothing);
  EXPECT_EQ(of(Sharing::block1x128, Sharing::block128x128, 120),
            "matrix multiply: A: FP8 with scales for 1x128 needs compute capability 9.0, and this chip has "
            "12.0");
  EXPECT_EQ(of(Sharing::block1x128, Sharing::block128x128, 0), kNothing) << "the chip is unknown";
  const View fp4 = tensor::make_view(nullptr, DType::e2m1, device::DeviceType::cuda, {16, 64});
  const Operand a{fp4, DType::e2m1, {}}, b{fp4.transposed(), DType::e2m1, {}};
  EXPECT_EQ(of(a, b, {}, 90),
            "matrix multiply: FP4 codes need compute capability 10.0 or later, and this chip has 9.0");
  EXPECT_EQ(of(a, b, {}, 100), kNothing);
  EXPECT_EQ(of(a, b, {}, 0), kNothing);
}

TEST_F(Refusals, NameThePair) {
  EXPECT_EQ(of(Sharing::block128x128, Sharing::block128x128, kHopper),
            "matrix multiply: A with scales for 128x128 and B with scales for 128x128 is not supported by cuBLASLt");
  EXPECT_EQ(of(Sharing::block1x128, Sharing::one, kHopper),
            "matrix multiply: A with scales for 1x128 and B with tensor scale is not supported by cuBLASLt");
  EXPECT_EQ(of(Sharing::block1x128, Sharing::block1x128, kHopper, {.fast_accumulation = true}),
            "matrix multiply: fast accumulation is not supported with scales for blocks of 128");
  const Codes a = make_codes(DType::e5m2, 16, 64, Sharing::one, 1),
              b = make_codes(DType::e5m2, 16, 64, Sharing::one, 2);
  EXPECT_EQ(of(a.operand(false), b.operand(true)),
            "matrix multiply: float8_e5m2 times float8_e5m2 is not supported by cuBLASLt");
}

TEST_F(Refusals, NameTheLayoutOfCodes) {
  const Codes a = make_codes(DType::e4m3, 16, 64, Sharing::one, 1),
              b = make_codes(DType::e4m3, 16, 64, Sharing::one, 2);
  const Codes ragged = make_codes(DType::e4m3, 16, 60, Sharing::one, 1),
              other = make_codes(DType::e4m3, 16, 60, Sharing::one, 1);
  Operand o = a.operand(false);
  o.matrix = make_codes(DType::e4m3, 64, 16, Sharing::one, 1).codes.transposed();
  EXPECT_EQ(of(o, b.operand(true)), "matrix multiply: A: FP8 codes must be contiguous along the contracted dimension");
  o = a.operand(false);
  o.matrix.data = static_cast<std::byte*>(o.matrix.data) + 8;
  EXPECT_EQ(of(o, b.operand(true)), "matrix multiply: A: rows of FP8 codes must begin at multiples of 16 bytes");
  o = b.operand(true);
  o.matrix.stride[1] = 72;
  EXPECT_EQ(of(a.operand(false), o), "matrix multiply: B: rows of FP8 codes must begin at multiples of 16 bytes");
  EXPECT_EQ(of(ragged.operand(false), other.operand(true)), kNothing);
  o = ragged.operand(false);
  o.matrix.stride[0] = 80;
  EXPECT_EQ(of(o, other.operand(true)), "matrix multiply: A: 60 FP8 codes in a row must be padded with zeros to 64");
  const Codes narrow = make_codes(DType::e4m3, 12, 64, Sharing::one, 2);
  EXPECT_EQ(of(a.operand(false), narrow.operand(true)),
            "matrix multiply: C [16, 12]: rows of the result of FP8 codes must begin at multiples of 16 bytes and have "
            "lengths "
            "of multiples of 16 bytes");
  const Codes few = make_codes(DType::e4m3, 12, 64, Sharing::block128x128, 2),
              many = make_codes(DType::e4m3, 16, 64, Sharing::block1x128, 2);
  EXPECT_EQ(of(few.operand(false), many.operand(true)),
            "matrix multiply: C [12, 16]: extents must be multiples of 8 with scales for blocks of 128");
}

TEST_F(Refusals, NameTheLayoutOfScales) {
  const Codes a = make_codes(DType::e4m3, 16, 256, Sharing::block1x128, 1),
              b = make_codes(DType::e4m3, 16, 256, Sharing::block128x128, 2);
  EXPECT_EQ(of(a.operand(false), b.operand(true)), kNothing);
  Operand o = a.operand(false);
  const Tensor by_rows(DType::f32, {16, 2});
  o.inverse_scale = by_rows.view();
  EXPECT_EQ(of(o, b.operand(true)), "matrix multiply: A: scales for 1x128 blocks have a wrong type or layout");
  o = b.operand(true);
  const Tensor dense(DType::f32, {2, 2});
  Codes wide = make_codes(DType::e4m3, 256, 256, Sharing::block128x128, 2);
  o = wide.operand(true);
  o.inverse_scale = dense.view();
  EXPECT_EQ(of(a.operand(false), o), "matrix multiply: B: scales for 128x128 blocks have a wrong type or layout");
  o.inverse_scale = {};
  EXPECT_EQ(of(a.operand(false), o), "matrix multiply: B: scales for 128x128 blocks have a wrong type or layout");
}

// GEMMs of experts with so many rows, as forward, dgrad and wgrad have them.
struct OfExpert {
  explicit OfExpert(std::int64_t rows, bool fp8)
      : x(DType::bf16, {rows, 64}), w(DType::bf16, {32, 64}), dy(DType::bf16, {rows, 32}), dw(DType::f32, {32, 64}) {
    const auto codes = [](std::int64_t n, std::int64_t k) { return make_codes(DType::e4m3, n, k, Sharing::one, 1); };
    const Codes cx = codes(rows, 64), cw = codes(32, 64), tx = codes(64, rows), ty = codes(32, rows);
    const auto of = [&](const Operand& a, const Operand& b, const View& c) {
      return describe(a, b, c, {}, kHopper).plan;
    };
    forward = fp8 ? of(cx.operand(false), cw.operand(true), dy.view())
                  : of(plain(x.view()), plain(w.view().transposed()), dy.view());
    wgrad = fp8 ? of(ty.operand(false), tx.operand(true), dw.view())
                : of(plain(dy.view().transposed()), plain(x.view()), dw.view());
  }
  Tensor x, w, dy, dw;
  DevicePlan forward, wgrad;
};

// One plan for all numbers of rows that are rounded to the same, which is the plan of these rows.
TEST(DevicePlan, RoundedRowsShareAPlan) {
  for (const bool fp8 : {false, true}) {
    std::set<DevicePlan> forward, wgrad;
    for (std::int64_t rows = 1; rows <= 1024; rows += rows < 64 ? 1 : 3) {
      const OfExpert expert(rows, fp8);
      forward.insert(with_rounded_rows(expert.forward, GemmRole::forward));
      wgrad.insert(with_rounded_rows(expert.wgrad, GemmRole::wgrad));
      EXPECT_LE(with_rounded_rows(expert.forward, GemmRole::dgrad).n, std::max(rows + 15, rows * 5 / 4)) << rows;
    }
    EXPECT_EQ(forward.size(), 20U);
    EXPECT_EQ(wgrad.size(), 20U);
    const OfExpert of_224(224, fp8);
    EXPECT_TRUE(forward.contains(of_224.forward));
    EXPECT_TRUE(wgrad.contains(of_224.wgrad));
    EXPECT_EQ(with_rounded_rows(OfExpert(193, fp8).wgrad, GemmRole::wgrad), of_224.wgrad);
  }
}

TEST(DevicePlan, KeysDifferIffKernelsMay) {
  const Codes a = make_codes(DType::e4m3, 16, 64, Sharing::one, 1),
              b = make_codes(DType::e4m3, 32, 64, Sharing::one, 2);
  const Codes again = make_codes(DType::e4m3, 16, 64, Sharing::one, 7);
  const Tensor c(DType::bf16, {16, 32}), other(DType::bf16, {16, 32}), wide(DType::bf16, {16, 64});
  const auto plan = [&](const Codes& x, const View& to, const MatmulOptions& options) {
    return describe(x.operand(false), b.operand(true), to, options, kHopper).plan;
  };
  EXPECT_EQ(plan(a, c.view(), {}), plan(again, other.view(), {.role = GemmRole::dgrad}));
  EXPECT_NE(plan(a, c.view(), {}), plan(a, wide.view().columns(0, 32), {}));
  EXPECT_NE(plan(a, c.view(), {}), plan(a, c.view(), {.fast_accumulation = true}));
  EXPECT_EQ(name_of(plan(a, c.view(), {.fast_accumulation = true})),
            "float8_e4m3fn with a tensor scale times float8_e4m3fn with a tensor scale into bfloat16 [16, 32], K = 64, "
            "fast accumulation");
  const Matrix x = integers(DType::bf16, 5, 9, Layout::rows, 1), y = integers(DType::bf16, 9, 6, Layout::rows, 2);
  const Tensor z(DType::f32, {5, 6});
  const DevicePlan even = describe(plain(x.view), plain(y.view), z.view(), {.fast_accumulation = true}, kHopper).plan;
  EXPECT_FALSE(even.fast_accumulation) << "FP8 only";
  EXPECT_EQ(even.a.alignment, 16u);
  EXPECT_EQ(describe(plain(x.view.columns(1, 9)), plain(y.view.rows(1, 9)), z.view(), {}, kHopper).plan.b.alignment,
            2u);
}

// Calls that one grouped GEMM computes, and changes to one of them with which none does.
TEST(Together, OnlyCallsOfOneKind) {
  const auto call = [](std::int64_t rows, std::int64_t k, std::int64_t n, DType out,
                       const MatmulOptions& options = {}) {
    const Tensor x(DType::bf16, {rows, k}), w(DType::bf16, {n, k}), y(out, {rows, n});
    return describe(plain(x.view()), plain(w.view().transposed()), y.view(), options, kHopper);
  };
  const DeviceCall one = call(5, 64, 32, DType::bf16);
  const auto with = [&](const DeviceCall& other) { return together(std::array{one, other}).has_value(); };
  EXPECT_TRUE(with(call(1, 64, 32, DType::bf16)));
  EXPECT_TRUE(with(call(5, 128, 48, DType::bf16))) << "extents may differ";
  EXPECT_FALSE(together(std::array{one}).has_value());
  EXPECT_FALSE(with(call(5, 64, 32, DType::f32))) << "another type of C";
  EXPECT_FALSE(with(call(5, 60, 32, DType::bf16))) << "rows of 120 bytes";
  EXPECT_FALSE(with(call(5, 64, 36, DType::bf16))) << "rows of C of 72 bytes";
  EXPECT_FALSE(with(call(5, 0, 32, DType::bf16)));
  const Tensor bias(DType::bf16, {32});
  EXPECT_FALSE(with(call(5, 64, 32, DType::bf16, {.bias = bias.view()})));
  const Tensor x(DType::f32, {5, 64}), w(DType::f32, {64, 32}), y(DType::f32, {5, 32});
  const DeviceCall f32 = describe(plain(x.view()), plain(w.view()), y.view(), {}, kHopper);
  EXPECT_FALSE(together(std::array{f32, f32}).has_value()) << "f32 operands";
}

TEST(Together, Fp8WithOneScaleEach) {
  for (const Sharing sharing : {Sharing::one, Sharing::vector, Sharing::block1x128}) {
    std::vector<DeviceCall> calls;
    for (const std::int64_t rows : {8, 24}) {
      const Codes a = make_codes(DType::e5m2, rows, 160, sharing, 1), b = make_codes(DType::e4m3, 32, 160, sharing, 2);
      const Tensor y(DType::bf16, {rows, 32});
      calls.push_back(describe(a.operand(false), b.operand(true), y.view(), {}, kHopper));
    }
    const std::optional<DevicePlan> plan = together(calls);
    ASSERT_EQ(plan.has_value(), sharing == Sharing::one);
    if (!plan) continue;
    EXPECT_EQ(plan->groups, 2);
    EXPECT_EQ(plan->m, 32);
    EXPECT_EQ(plan->n, 16);
    EXPECT_EQ(plan->k, 160);
    EXPECT_EQ(plan->a.scaling, Scaling::per_batch_scalar_32f);
    EXPECT_EQ(plan->b.scaling, Scaling::per_batch_scalar_32f);
    EXPECT_EQ(name_of(*plan),
              "2 products of on average float8_e5m2 with a tensor scale times float8_e4m3fn with a "
              "tensor scale into bfloat16 [16, 32], K = 160");
  }
}

}  // namespace
}  // namespace fp8::gemm::testing
