// Accumulation of tensor cores: the loops of every instruction set and the scalar path compared with a second
// implementation of the rule, bit for bit. Results of an H100 and an RTX 4060 are compared in tests/golden.
#include "tensor_core.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "fp8/base/error.h"
#include "fp8/dtype/element.h"
#include "isas.h"
#include "matrices.h"
#include "tensor_core_blocks.h"

namespace fp8::gemm::testing {
namespace {

constexpr TensorCoreKernels kScalarKernels = tensor_core::kernels<tensor_core::ScalarPath>();

struct Path {
  std::string name;
  const TensorCoreKernels* kernels;
};

std::vector<Path> paths() {
  std::vector<Path> all{{"scalar", &kScalarKernels}};
  for (const Isa isa : test::isas()) all.push_back({std::string(name_of(isa)), &tensor_core_kernels(isa)});
  return all;
}

float decoded(DType format, std::uint8_t code) {
  return format == DType::e4m3 ? dtype::from_e4m3(code) : dtype::from_e5m2(code);
}

// Kinds of codes of a matrix.
enum class OperandKind { any_finite, small, wide, equal_and_opposite, mostly_zero, any };

std::uint8_t code_of(OperandKind kind, DType format, std::uint32_t word) {
  auto code = static_cast<std::uint8_t>(word);
  if (kind == OperandKind::small) code &= 0x83;
  if (kind == OperandKind::wide) code &= format == DType::e4m3 ? 0xF8 : 0xFC;
  if (kind == OperandKind::equal_and_opposite) code = static_cast<std::uint8_t>((word & 0x80) | 0x3E);
  if (kind == OperandKind::mostly_zero && word >> 8 & 7) code &= 0x80;
  if (kind != OperandKind::any && !std::isfinite(decoded(format, code))) code = 0x31;
  return code;
}

// A matrix [rows, columns] of FP8 values as bf16.
Matrix coded(DType format, OperandKind kind, std::int64_t rows, std::int64_t columns, Layout layout,
             std::uint64_t seed) {
  Matrix m = integers(DType::bf16, rows, columns, layout, 1);
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const std::uint32_t word = device::philox(seed, static_cast<std::uint64_t>(i), 0)[0];
    set(m.view, i / columns, i % columns, decoded(format, code_of(kind, format, word)));
  }
  return m;
}

int exponent_of(float v, DType format) { return std::max(std::ilogb(v), format == DType::e4m3 ? -6 : -14); }

// A value in units of 2^unit, truncated.
std::int64_t truncated(double v, int unit) { return static_cast<std::int64_t>(std::ldexp(v, -unit)); }

// The next accumulator, by the rule.
float next(const float* a, const float* b, int count, DType format_a, DType format_b, float c) {
  int largest = c == 0 ? -132 : std::max(std::ilogb(c), -132);
  for (int k = 0; k < count; ++k)
    if (a[k] * b[k] != 0) largest = std::max(largest, exponent_of(a[k], format_a) + exponent_of(b[k], format_b));
  std::int64_t sum = truncated(static_cast<double>(c), largest - 13);
  for (int k = 0; k < count; ++k) sum += truncated(static_cast<double>(a[k]) * static_cast<double>(b[k]), largest - 13);
  int unit = largest - 13;
  for (; sum >= 1 << 14 || sum <= -(1 << 14); ++unit) sum /= 2;
  return std::ldexp(static_cast<float>(sum), unit) + 0.0f;
}

struct Case {
  DType format_a, format_b;
  Accumulation accumulation;
  bool fast;
};

float rule(const std::vector<float>& a, const std::vector<float>& b, const Case& c) {
  const int block = c.accumulation == Accumulation::hopper ? 32 : 16, depth = static_cast<int>(a.size());
  float ieee = 0, sum = 0, chain = 0;
  for (std::size_t k = 0; k < a.size(); ++k) ieee += a[k] * b[k];
  if (!std::isfinite(ieee)) return ieee;
  for (int k = 0; k < depth; k += block) {
    if (!c.fast && k % 128 == 0) sum += chain, chain = 0;
    chain = next(&a[static_cast<std::size_t>(k)], &b[static_cast<std::size_t>(k)], std::min(block, depth - k),
                 c.format_a, c.format_b, chain);
  }
  return sum + chain;
}

std::vector<float> line(const View& v, std::int64_t at, bool row) {
  std::vector<float> values;
  for (std::int64_t k = 0; k < v.shape[row ? 1 : 0]; ++k) values.push_back(row ? get(v, at, k) : get(v, k, at));
  return values;
}

bool same(float x, float y) {
  return std::isnan(x) ? std::isnan(y) : std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
}

Tensor kernel_product(const TensorCoreKernels& kernels, const Operand& a, const Operand& b, const Case& c) {
  Tensor out(DType::f32, {a.matrix.shape[0], b.matrix.shape[1]});
  MatmulOptions options;
  options.fast_accumulation = c.fast;
  options.accumulation = c.accumulation;
  TensorCoreGemm gemm(kernels);
  gemm.run(true, a, b, out.view(), options);
  const std::size_t planned = gemm.scratch_bytes();
  gemm.run(false, a, b, out.view(), options);
  EXPECT_EQ(gemm.scratch_bytes(), planned);
  return out;
}

// Compares every path with the rule.
void check(const Matrix& a, const Matrix& b, const Case& c, const std::string& what) {
  const std::int64_t m = a.view.shape[0], n = b.view.shape[1];
  std::vector<float> want;
  for (std::int64_t i = 0; i < m * n; ++i)
    want.push_back(rule(line(a.view, i / n, true), line(b.view, i % n, false), c));
  for (const Path& path : paths()) {
    const Tensor out = kernel_product(*path.kernels, {a.view, c.format_a, {}}, {b.view, c.format_b, {}}, c);
    for (std::int64_t i = 0; i < m * n; ++i)
      ASSERT_TRUE(same(out.as<float>()[i], want[static_cast<std::size_t>(i)]))
          << path.name << ", " << what << (c.fast ? ", fast" : ", slow") << ", element " << i << ": "
          << out.as<float>()[i] << ", want " << want[static_cast<std::size_t>(i)];
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [a, b] : {std::pair{DType::e4m3, DType::e4m3}, std::pair{DType::e5m2, DType::e4m3},
                             std::pair{DType::e4m3, DType::e5m2}, std::pair{DType::e5m2, DType::e5m2}})
    for (const Accumulation accumulation : {Accumulation::hopper, Accumulation::ada})
      for (const bool fast : {true, false}) all.push_back({a, b, accumulation, fast});
  return all;
}

TEST(TensorCore, EveryKindOfCodes) {
  for (const Case& c : cases())
    for (const OperandKind kind : {OperandKind::any_finite, OperandKind::small, OperandKind::wide,
                                   OperandKind::equal_and_opposite, OperandKind::mostly_zero, OperandKind::any}) {
      const Matrix a = coded(c.format_a, kind, 5, 170, Layout::rows, 1);
      const Matrix b = coded(c.format_b, kind, 170, 19, Layout::transposed, 2);
      check(a, b, c, "kind " + std::to_string(static_cast<int>(kind)));
    }
}

TEST(TensorCore, EveryPairOfCodes) {
  for (const Case& c : cases()) {
    if (c.accumulation != Accumulation::hopper || !c.fast) continue;  // with one product all cases are the same
    Matrix a = integers(DType::bf16, 256, 1, Layout::rows, 1), b = integers(DType::bf16, 1, 256, Layout::rows, 1);
    for (int code = 0; code < 256; ++code) {
      set(a.view, code, 0, decoded(c.format_a, static_cast<std::uint8_t>(code)));
      set(b.view, 0, code, decoded(c.format_b, static_cast<std::uint8_t>(code)));
    }
    check(a, b, c, "one product");
  }
}

TEST(TensorCore, EveryLayoutAndSize) {
  constexpr struct {
    std::int64_t m, n, k;
  } kSizes[] = {{1, 1, 1}, {3, 40, 31}, {5, 33, 32}, {17, 1, 33}, {70, 5, 127}, {4, 17, 129}, {66, 3, 520}};
  for (const auto& size : kSizes)
    for (const Layout la : {Layout::rows, Layout::transposed, Layout::wide, Layout::transposed_wide})
      for (const Layout lb : {Layout::rows, Layout::transposed, Layout::wide, Layout::transposed_wide})
        for (const bool fast : {true, false}) {
          const Matrix a = coded(DType::e5m2, OperandKind::any_finite, size.m, size.k, la, 3);
          const Matrix b = coded(DType::e4m3, OperandKind::any_finite, size.k, size.n, lb, 4);
          check(a, b, {DType::e5m2, DType::e4m3, Accumulation::hopper, fast}, "K = " + std::to_string(size.k));
        }
}

// Products much larger than the accumulator that cancel, accumulators of both signs, sums that are zero.
TEST(TensorCore, AccumulatorsFarFromProducts) {
  Matrix a = integers(DType::bf16, 4, 96, Layout::rows, 1), b = integers(DType::bf16, 96, 4, Layout::rows, 1);
  for (int i = 0; i < 4 * 96; ++i) {
    const int k = i % 96;
    set(a.view, i / 96, k, k < 32 ? 0x1p-9f : k < 64 ? (i / 96 % 2 ? 448.0f : -448.0f) : 0x1p-8f);
    set(b.view, k, i / 96, k < 32 ? -0x1.8p-9f : k < 64 ? (k % 2 ? 256.0f : -256.0f) : (i / 96 < 2 ? 1.0f : 0.0f));
  }
  for (const Accumulation accumulation : {Accumulation::hopper, Accumulation::ada})
    for (const bool fast : {true, false}) check(a, b, {DType::e4m3, DType::e4m3, accumulation, fast}, "far");
}

// One infinity or NaN among finite codes, and products of infinities with zero or with each other.
TEST(TensorCore, NonFiniteCodes) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float special : {infinity, -infinity, nan})
    for (const float other : {1.0f, 0.0f, -infinity, infinity, nan}) {
      Matrix a = coded(DType::e5m2, OperandKind::any_finite, 6, 70, Layout::rows, 5);
      Matrix b = coded(DType::e5m2, OperandKind::any_finite, 70, 20, Layout::rows, 6);
      set(a.view, 2, 40, special);
      set(b.view, 40, 7, other);
      for (const bool fast : {true, false})
        check(a, b, {DType::e5m2, DType::e5m2, Accumulation::hopper, fast}, std::to_string(special));
    }
}

TEST(TensorCore, TilesAndThreadsDoNotChangeBits) {
  const Matrix a = coded(DType::e4m3, OperandKind::any_finite, 1100, 640, Layout::rows, 7);
  const Matrix b = coded(DType::e4m3, OperandKind::any_finite, 640, 1060, Layout::transposed, 8);
  const Case c{DType::e4m3, DType::e4m3, Accumulation::hopper, true};
  const int threads = omp_get_max_threads();
  for (const Path& path : paths()) {
    if (path.name == "scalar") continue;
    omp_set_num_threads(1);
    const Tensor one = kernel_product(*path.kernels, {a.view, c.format_a, {}}, {b.view, c.format_b, {}}, c);
    omp_set_num_threads(3);
    const Tensor three = kernel_product(*path.kernels, {a.view, c.format_a, {}}, {b.view, c.format_b, {}}, c);
    omp_set_num_threads(threads);
    for (std::int64_t i = 0; i < 1100 * 1060; ++i) ASSERT_EQ(one.as<float>()[i], three.as<float>()[i]) << path.name;
    for (const std::int64_t i : {0, 1023, 1024, 1099})
      for (const std::int64_t j : {0, 1023, 1024, 1059})
        EXPECT_EQ(get(one.view(), i, j), rule(line(a.view, i, true), line(b.view, j, false), c)) << i << " " << j;
  }
}

// Through the engine: sums are multiplied by the product of the inverse scales; bias and C are added separately.
TEST(TensorCore, ScalesBiasAndAccumulation) {
  const std::int64_t m = 5, n = 35, k = 150;
  const Matrix a = coded(DType::e4m3, OperandKind::any_finite, m, k, Layout::rows, 9);
  const Matrix b = coded(DType::e4m3, OperandKind::any_finite, k, n, Layout::transposed, 10);
  const Case c{DType::e4m3, DType::e4m3, Accumulation::hopper, true};
  const Tensor bias = odd_scales(n, 300.0f);
  for (const std::int64_t scales_a : {std::int64_t{0}, std::int64_t{1}, m})
    for (const std::int64_t scales_b : {std::int64_t{0}, std::int64_t{1}, n})
      for (const DType type : {DType::f32, DType::bf16}) {
        const Tensor one = odd_scales(std::max<std::int64_t>(1, scales_a), 1.7f);
        const Tensor two = odd_scales(std::max<std::int64_t>(1, scales_b), 1.1f);
        Matrix out = integers(type, m, n, Layout::wide, 3);
        const Matrix before = integers(type, m, n, Layout::wide, 3);
        MatmulOptions options{GemmRole::wgrad, type == DType::f32, c.fast, bias.view(), c.accumulation};
        Engine().matmul(Context{}, {a.view, c.format_a, scales_a == 0 ? View{} : one.view()},
                        {b.view, c.format_b, scales_b == 0 ? View{} : two.view()}, out.view, options);
        for (std::int64_t i = 0; i < m * n; ++i) {
          const std::int64_t row = i / n, column = i % n;
          const float alpha = (scales_a == 0 ? 1.0f : one.as<float>()[scales_a == 1 ? 0 : row]) *
                              (scales_b == 0 ? 1.0f : two.as<float>()[scales_b == 1 ? 0 : column]);
          float want = alpha * rule(line(a.view, row, true), line(b.view, column, false), c);
          want += bias.as<float>()[column];
          if (type == DType::f32) want += get(before.view, row, column);
          if (type == DType::bf16) want = dtype::to_float(dtype::to_bf16(want));
          ASSERT_EQ(get(out.view, row, column), want) << scales_a << " " << scales_b << ", element " << i;
        }
      }
}

// With scales for blocks of 128 every block is a chain, which is scaled before it is added; every path and layout.
TEST(TensorCore, ChainsOfBlocksAreScaled) {
  for (const std::int64_t k : {std::int64_t{40}, std::int64_t{128}, std::int64_t{700}})
    for (const auto& [blocks_a, blocks_b] : {std::pair{ScaleBlocks::block1x128, ScaleBlocks::block128x128},
                                             std::pair{ScaleBlocks::block1x128, ScaleBlocks::block1x128},
                                             std::pair{ScaleBlocks::block128x128, ScaleBlocks::block1x128}})
      for (const Accumulation accumulation : {Accumulation::hopper, Accumulation::ada}) {
        const bool wide_a = blocks_a == ScaleBlocks::block128x128, wide_b = blocks_b == ScaleBlocks::block128x128;
        const std::int64_t m = wide_a ? 131 : wide_b ? 6 : 70, n = wide_b ? 131 : wide_a ? 6 : 35;
        const std::int64_t chains = (k + 127) / 128;
        const Matrix a = coded(DType::e4m3, OperandKind::any_finite, m, k, Layout::transposed, 11);
        const Matrix b = coded(DType::e4m3, OperandKind::any_finite, k, n, Layout::rows, 12);
        const auto count = [](ScaleBlocks blocks, std::int64_t outer) {
          return blocks == ScaleBlocks::block128x128 ? (outer + 127) / 128 : outer;
        };
        const Tensor of_a = odd_scales(count(blocks_a, m) * chains, 1.7f);
        const Tensor of_b = odd_scales(count(blocks_b, n) * chains, 1.1f);
        const View scales_a = of_a.view().reshaped({chains, count(blocks_a, m)}).transposed();
        const View scales_b = of_b.view().reshaped({count(blocks_b, n), chains});
        const Case c{DType::e4m3, DType::e4m3, accumulation, true};
        const auto part = [](const std::vector<float>& v, std::int64_t chain) {
          const auto begin = v.begin() + chain * 128;
          return std::vector<float>(begin, v.end() - begin > 128 ? begin + 128 : v.end());
        };
        for (const Path& path : paths()) {
          const Tensor out =
              kernel_product(*path.kernels, {a.view, c.format_a, scales_a, blocks_a},
                             {b.view, c.format_b, scales_b, blocks_b}, {c.format_a, c.format_b, accumulation, false});
          for (std::int64_t i = 0; i < m * n; i += 17) {
            const std::vector<float> row = line(a.view, i / n, true), column = line(b.view, i % n, false);
            float want = 0;
            for (std::int64_t chain = 0; chain < chains; ++chain) {
              const float alpha = get(scales_a, wide_a ? i / n / 128 : i / n, chain) *
                                  get(scales_b, wide_b ? i % n / 128 : i % n, chain);
              want += alpha * rule(part(row, chain), part(column, chain), c);
            }
            ASSERT_EQ(out.as<float>()[i], want) << path.name << ", K = " << k << ", element " << i;
          }
        }
      }
}

// Other GEMMs accumulate in f32; FP8 values stored as f32 are refused.
TEST(TensorCore, OnlyFp8Gemms) {
  const Matrix a = integers(DType::bf16, 20, 200, Layout::rows, 1), b = integers(DType::bf16, 200, 30, Layout::rows, 2);
  const Tensor plain_sums(DType::f32, {20, 30}), hopper(DType::f32, {20, 30});
  MatmulOptions options;
  options.accumulation = Accumulation::hopper;
  set(a.view, 0, 0, 0x1.02p0f);
  for (const DType format_b : {DType::bf16, DType::e4m3}) {
    Engine engine;
    engine.matmul(Context{}, plain(a.view), {b.view, format_b, {}}, plain_sums.view(), {});
    engine.matmul(Context{}, plain(a.view), {b.view, format_b, {}}, hopper.view(), options);
    for (int i = 0; i < 600; ++i) ASSERT_EQ(plain_sums.as<float>()[i], hopper.as<float>()[i]);
  }
  const Matrix f = integers(DType::f32, 20, 200, Layout::rows, 1), g = integers(DType::f32, 200, 30, Layout::rows, 1);
  EXPECT_THROW(Engine().matmul(Context{}, {f.view, DType::e4m3, {}}, {g.view, DType::e4m3, {}}, hopper.view(), options),
               Error);
}

TEST(TensorCore, EmptyMatrices) {
  const Tensor a(DType::bf16, {4, 0}), b(DType::bf16, {0, 6}), c(DType::f32, {4, 6}), none(DType::f32, {0, 6});
  std::fill_n(c.as<float>(), 24, 3.0f);
  MatmulOptions options;
  options.accumulation = Accumulation::hopper;
  Engine().matmul(Context{}, {a.view(), DType::e4m3, {}}, {b.view(), DType::e4m3, {}}, c.view(), options);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(c.as<float>()[i], 0.0f);
}

}  // namespace
}  // namespace fp8::gemm::testing
