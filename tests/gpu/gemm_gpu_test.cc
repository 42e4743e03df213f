// Every mode of matmul on a GPU against the host. Small integers with power-of-2 scales have exact sums in any order,
// also on FP8 tensor cores, and are compared bit for bit; random numbers are compared within the stated bounds.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "../../lib/gemm/tests/codes.h"
#include "../../lib/gemm/tests/matrices.h"
#include "../../lib/gemm/tests/modes.h"
#include "fp8/device/arena.h"
#include "fp8/dtype/convert.h"
#include "fp8_codes.h"
#include "fp8_test.h"

namespace fp8::gemm::testing {
namespace {

using device::DeviceType;

// A copy of `memory` on the device, and the view of the copy that corresponds to `view`.
class OnGpu {
 public:
  OnGpu(const Context& ctx, const tensor::Tensor& memory, const View& view) : ctx_(ctx), host_(memory.view()) {
    buffer_ = device::Buffer(std::max<std::size_t>(host_.bytes(), 1), DeviceType::cuda, "test");
    device::copy_bytes(ctx, buffer_.data(), DeviceType::cuda, host_.data, DeviceType::host, host_.bytes());
    view_ = view;
    view_.device = DeviceType::cuda;
    view_.data = buffer_.data() + (static_cast<std::byte*>(view.data) - static_cast<std::byte*>(host_.data));
  }
  const View& view() const { return view_; }
  // Copies all memory back to the host.
  void fetch() const {
    device::copy_bytes(ctx_, host_.data, DeviceType::host, buffer_.data(), DeviceType::cuda, host_.bytes());
  }

 private:
  const Context& ctx_;
  View host_, view_;
  device::Buffer buffer_;
};

class GemmGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::cuda_device_count() == 0) GTEST_SKIP() << device::why_no_cuda();
    gpu_ = std::make_unique<device::Device>(DeviceType::cuda);
    ctx_ = gpu_->context(arena_);
  }
  bool hopper() const { return gpu_->compute_capability() == 90; }
  bool fp8() const { return gpu_->compute_capability() >= 89; }

  // Runs one matmul on the GPU and copies C back to `c_memory`.
  void multiply(const Operand& a, const tensor::Tensor& a_memory, const Operand& b, const tensor::Tensor& b_memory,
                const View& c, const tensor::Tensor& c_memory, const MatmulOptions& options) {
    const OnGpu x(ctx_, a_memory, a.matrix), y(ctx_, b_memory, b.matrix), z(ctx_, c_memory, c);
    MatmulOptions there = options;
    std::optional<OnGpu> bias;
    tensor::Tensor bias_memory;
    if (!options.bias.empty()) {
      bias_memory = tensor::Tensor(options.bias.dtype, {options.bias.size()});
      std::memcpy(bias_memory.view().data, options.bias.data, options.bias.bytes());
      there.bias = bias.emplace(ctx_, bias_memory, bias_memory.view()).view();
    }
    engine_->matmul(ctx_, {x.view(), a.format, {}}, {y.view(), b.format, {}}, z.view(), there);
    z.fetch();
  }
  // C = A B^T of codes on the GPU, computed in f32 or bf16, as floats.
  std::vector<float> product_of(const Codes& a, const Codes& b, DType type, const MatmulOptions& options) {
    const std::int64_t m = a.codes.shape[0], n = b.codes.shape[0];
    const OnGpu x(ctx_, a.memory, a.codes), y(ctx_, b.memory, b.codes);
    const OnGpu sx(ctx_, a.scale_memory, a.scales), sy(ctx_, b.scale_memory, b.scales);
    const tensor::Tensor c(type, {m, n});
    const OnGpu z(ctx_, c, c.view());
    Operand left = a.operand(false), right = b.operand(true);
    left.matrix = x.view();
    left.inverse_scale = sx.view();
    right.matrix = y.view().transposed();
    right.inverse_scale = sy.view();
    engine_->matmul(ctx_, left, right, z.view(), options);
    z.fetch();
    std::vector<float> out;
    for (std::int64_t i = 0; i < m * n; ++i) out.push_back(get(c.view(), i / n, i % n));
    return out;
  }

  std::unique_ptr<device::Device> gpu_;
  device::Arena arena_;
  Context ctx_;
  std::unique_ptr<Engine> engine_ = std::make_unique<Engine>();
};

constexpr Size kProductSizes[] = {{1, 1, 1},    {1, 7, 5},      {5, 1, 3}, {17, 33, 65},
                                  {64, 48, 16}, {128, 96, 130}, {7, 5, 0}};

TEST_F(GemmGpu, IntegersMatchTheHostBitForBit) {
  Engine host;
  for (const auto& [in, out] : {std::pair{DType::f32, DType::f32},
                                {DType::bf16, DType::bf16},
                                {DType::bf16, DType::f32},
                                {DType::f32, DType::bf16}}) {
    for (const Size s : kProductSizes) {
      for (const Layout la : kLayouts) {
        for (const Layout lb : kLayouts) {
          const Matrix a = integers(in, s.m, s.k, la, 1), b = integers(in, s.k, s.n, lb, 2);
          for (int bits = 0; bits < 6; ++bits) {  // bias: none, f32, bf16; accumulating or not
            if (bits % 2 == 1 && out == DType::bf16) continue;
            const Matrix c = integers(out, s.m, s.n, Layout::wide, 3), want = integers(out, s.m, s.n, Layout::wide, 3);
            const Matrix bias = integers(bits / 2 == 1 ? DType::f32 : DType::bf16, 1, s.n, Layout::rows, 4);
            MatmulOptions options{.accumulate = bits % 2 == 1};
            if (bits >= 2) options.bias = bias.view.reshaped({s.n});
            multiply(plain(a.view), a.memory, plain(b.view), b.memory, c.view, c.memory, options);
            host.matmul(Context{}, plain(a.view), plain(b.view), want.view, options);
            ASSERT_EQ(std::memcmp(c.memory.view().data, want.memory.view().data, c.memory.view().bytes()), 0)
                << s.m << ' ' << s.n << ' ' << s.k << " layouts " << static_cast<int>(la) << static_cast<int>(lb) << ' '
                << bits;
          }
        }
      }
    }
  }
}

// 1 + 2^-20 is not representable in TF32 (10 fraction bits) and bf16 (7).
TEST_F(GemmGpu, F32IsNotRoundedBeforeMultiplication) {
  const tensor::Tensor a(DType::f32, {64, 64}), b(DType::f32, {64, 64}), c(DType::f32, {64, 64});
  for (std::int64_t i = 0; i < 64; ++i) {
    a.as<float>()[i * 65] = 1 + 0x1p-20f;
    for (std::int64_t j = 0; j < 64; ++j) b.as<float>()[i * 64 + j] = static_cast<float>(i + j);
  }
  multiply(plain(a.view()), a, plain(b.view()), b, c.view(), c, {});
  for (std::int64_t i = 0; i < 64 * 64; ++i) ASSERT_EQ(c.as<float>()[i], b.as<float>()[i] * (1 + 0x1p-20f)) << i;
}

// A pair of scales and of formats.
using Fp8Case = std::tuple<SharingPair, std::pair<DType, DType>>;

class Fp8GemmGpu : public GemmGpu, public ::testing::WithParamInterface<Fp8Case> {
 protected:
  // Whether cuBLASLt must have a kernel. The manual promises FP8 kernels ("cublasLtMatmul()", "Tensor Core Usage") for
  // rows of 16 bytes, and PyTorch calls them with any number of rows of A. No library says that it has kernels with
  // scales for blocks of e5m2, nor with row scales for matrices smaller than a tile.
  bool promised(const Size& s) const {
    const auto& [scales, formats] = GetParam();
    const bool e4m3 = formats.first == DType::e4m3 && formats.second == DType::e4m3;
    const bool rows = scales.a == Sharing::vector || scales.b == Sharing::vector;
    if (s.n % 16 != 0) return false;
    if (blocks()) return e4m3 && s.m % 16 == 0;
    return !rows || (s.m >= kTile && s.n >= kTile && s.k >= kTile);
  }
  bool blocks() const {
    const Sharing a = std::get<0>(GetParam()).a;
    return a == Sharing::block1x128 || a == Sharing::block128x128;
  }
  static constexpr std::int64_t kTile = 128;
};

// A kernel that no manual promises may be missing, with the reason of the library; the test is skipped if all are.
TEST_P(Fp8GemmGpu, IsExact) {
  if (!fp8()) GTEST_SKIP() << gpu_->name() << " has no FP8";
  if (!hopper() && blocks()) GTEST_SKIP() << gpu_->name() << " has no scales for blocks of 128";
  const auto& [scales, formats] = GetParam();
  std::string missing;
  int computed = 0;
  for (const Size s :
       {Size{16, 24, 16}, {8, 136, 48}, {200, 16, 300}, {24, 16, 129}, {1, 8, 1}, {17, 32, 20}, {128, 144, 256}}) {
    if (blocks() && s.m % 8 != 0) continue;
    const Codes a = make_codes(formats.first, s.m, s.k, scales.a, 1),
                b = make_codes(formats.second, s.n, s.k, scales.b, 2);
    std::vector<float> want = product(a, b), got;
    for (const DType type : {DType::f32, DType::bf16}) {
      if (type == DType::bf16) {
        for (float& v : want) v = to_float(dtype::to_bf16(v));
      }
      for (const bool fast : {false, true}) {
        if (fast && blocks()) continue;
        const std::string refusal = test::error_of([&] { got = product_of(a, b, type, {.fast_accumulation = fast}); });
        if (!promised(s) && refusal.find("cuBLASLt") != std::string::npos) {
          missing = refusal;
          continue;
        }
        EXPECT_EQ(refusal, "no error");
        EXPECT_EQ(got, want) << s.m << ' ' << s.n << ' ' << s.k << " fast " << fast;
        ++computed;
      }
    }
  }
  if (!missing.empty()) RecordProperty("missing", missing);
  if (computed == 0) GTEST_SKIP() << "no such kernel, and none is promised: " << missing;
  EXPECT_GT(engine_->counts().by[3][2].gemms, 0) << "counted as FP8";
}
// "RowsE5m2And1x128E4m3" and so on.
std::string name_of_case(const ::testing::TestParamInfo<Fp8Case>& info) {
  constexpr std::array kNames{"Tensor", "Rows", "1x128", "128x128", "1x32"};
  const auto name = [&](Sharing s, DType f) {
    return std::string(kNames.at(static_cast<std::size_t>(s))) + (f == DType::e4m3 ? "E4m3" : "E5m2");
  };
  const auto& [scales, formats] = info.param;
  return name(scales.a, formats.first) + "And" + name(scales.b, formats.second);
}

constexpr std::pair<DType, DType> kFp8Pairs[] = {
    {DType::e4m3, DType::e4m3}, {DType::e5m2, DType::e4m3}, {DType::e4m3, DType::e5m2}};
INSTANTIATE_TEST_SUITE_P(, Fp8GemmGpu,
                         ::testing::Combine(::testing::ValuesIn(kSharingPairs), ::testing::ValuesIn(kFp8Pairs)),
                         name_of_case);

// FP8 codes of normally distributed numbers: products are exact; sums of FP8 tensor cores keep about 14 bits of the
// largest term and are added to f32 every 128 elements, or never with fast accumulation. The error is at most 4, or
// K/32, times 2^-13 of the sum of magnitudes. cuBLASLt may lack a kernel for few rows, a large K and row scales.
TEST_F(GemmGpu, Fp8SumsStayWithinTheirBound) {
  if (!fp8()) GTEST_SKIP() << gpu_->name() << " has no FP8";
  using Case = std::pair<std::int64_t, Sharing>;
  for (const auto& [k, sharing] : {Case{64, Sharing::one},
                                   {512, Sharing::one},
                                   {4096, Sharing::one},
                                   {512, Sharing::vector},
                                   {9216, Sharing::vector}}) {
    const std::int64_t m = 48, n = 64;
    Codes a = make_codes(DType::e4m3, m, k, sharing, 1), b = make_codes(DType::e4m3, n, k, sharing, 2);
    for (Codes* c : {&a, &b}) {
      auto* bytes = static_cast<std::uint8_t*>(c->memory.view().data);
      for (std::size_t i = 0; i < c->values.size(); ++i) {
        const auto words = device::philox(static_cast<std::uint64_t>(k), i, c == &a ? 7 : 8);
        bytes[i] = dtype::to_e4m3(8.0f * device::normal_pair(words[0], words[1])[0]);
        c->values[i] = dtype::from_e4m3(bytes[i]) *
                       c->scales.as<float>()[sharing == Sharing::one ? 0 : static_cast<std::int64_t>(i) / k];
      }
    }
    for (const bool fast : {false, true}) {
      const std::vector<float> got = product_of(a, b, DType::f32, {.fast_accumulation = fast});
      double worst = 0;
      for (std::int64_t i = 0; i < m * n; ++i) {
        double sum = 0, magnitude = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          const double p = static_cast<double>(a.values[static_cast<std::size_t>(i / n * k + l)]) *
                           static_cast<double>(b.values[static_cast<std::size_t>(i % n * k + l)]);
          sum += p;
          magnitude += std::abs(p);
        }
        worst = std::max(worst, std::abs(static_cast<double>(got[static_cast<std::size_t>(i)]) - sum) / magnitude);
      }
      const double steps = fast ? static_cast<double>(k) / 32 : 4;
      EXPECT_LE(worst, steps * 0x1p-13) << "K " << k << " fast " << fast;
      RecordProperty("worst_k" + std::to_string(k) + (sharing == Sharing::one ? "" : "_rows") + (fast ? "_fast" : ""),
                     std::to_string(worst * 0x1p13));
    }
  }
}

// bf16 and f32 sums of normally distributed numbers in any order: the error is at most K 2^-24 of the sum of
// magnitudes, plus half a unit of bf16 if C is bf16.
TEST_F(GemmGpu, Bf16AndF32SumsStayWithinTheirBound) {
  const std::int64_t m = 61, n = 130, k = 1027;
  for (const DType in : {DType::f32, DType::bf16}) {
    const tensor::Tensor a(in, {m, k}), b(in, {k, n}), c(in, {m, n});
    const auto fill = [&](const tensor::Tensor& t, std::uint64_t seed) {
      for (std::int64_t i = 0; i < t.view().size(); ++i) {
        const auto words = device::philox(seed, static_cast<std::uint64_t>(i), 9);
        const float v = device::normal_pair(words[0], words[1])[0];
        if (in == DType::f32) t.as<float>()[i] = v;
        if (in == DType::bf16) t.as<Bf16>()[i] = dtype::to_bf16(v);
      }
    };
    fill(a, 1);
    fill(b, 2);
    multiply(plain(a.view()), a, plain(b.view()), b, c.view(), c, {});
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          const double p = static_cast<double>(get(a.view(), i, l)) * static_cast<double>(get(b.view(), l, j));
          sum += p;
          magnitude += std::abs(p);
        }
        const double rounding = in == DType::bf16 ? std::abs(sum) * 0x1p-8 : 0;
        ASSERT_NEAR(static_cast<double>(get(c.view(), i, j)), sum,
                    magnitude * static_cast<double>(k) * 0x1p-24 + rounding);
      }
    }
  }
}

// Few rows and a large K, for which a library may split K.
TEST_F(GemmGpu, RepeatedCallsHaveEqualBits) {
  if (!fp8()) GTEST_SKIP() << gpu_->name() << " has no FP8";
  const Codes a = make_codes(DType::e4m3, 16, 16384, Sharing::one, 1),
              b = make_codes(DType::e4m3, 64, 16384, Sharing::one, 2);
  const auto first = product_of(a, b, DType::f32, {});
  for (int again = 0; again < 3; ++again) EXPECT_EQ(product_of(a, b, DType::f32, {}), first);
  engine_ = std::make_unique<Engine>();
  EXPECT_EQ(product_of(a, b, DType::f32, {}), first) << "another engine";
  const tensor::Tensor x(DType::bf16, {32, 8192}), w(DType::bf16, {8192, 48}), y(DType::bf16, {32, 48}),
      z(DType::bf16, {32, 48});
  for (const tensor::Tensor* t : {&x, &w}) {
    for (std::int64_t i = 0; i < t->view().size(); ++i)
      t->as<Bf16>()[i] = dtype::to_bf16(std::sin(static_cast<float>(i)));
  }
  multiply(plain(x.view()), x, plain(w.view()), w, y.view(), y, {});
  multiply(plain(x.view()), x, plain(w.view()), w, z.view(), z, {});
  EXPECT_EQ(std::memcmp(y.view().data, z.view().data, y.view().bytes()), 0);
}

TEST_F(GemmGpu, UnsupportedModesAreRefusedByName) {
  using Side = Mode::Side;
  const Side one{.format = DType::e4m3}, many{.format = DType::e4m3, .vector = true};
  const Side gradients{.format = DType::e5m2};
  const Side rows{.format = DType::e4m3, .blocks = ScaleBlocks::block1x128},
      squares{.format = DType::e4m3, .blocks = ScaleBlocks::block128x128};
  const auto refusal = [&](const Mode& m) { return test::error_of([&] { plan_mode(*engine_, ctx_, m); }); };
  const std::string fine = "no error";
  EXPECT_EQ(refusal({}), fine) << "bf16";
  EXPECT_EQ(refusal({.a = {.format = DType::f32}, .b = {.format = DType::f32}, .c = DType::f32}), fine);
  if (hopper()) {
    for (const Mode& m : {Mode{.a = one, .b = one, .fast_accumulation = true},
                          {.a = gradients, .b = one},
                          {.a = gradients, .b = one, .c = DType::f32, .accumulate = true},
                          {.a = many, .b = many, .fast_accumulation = true},
                          {.a = many, .b = one},
                          {.a = many, .b = many, .c = DType::f32, .accumulate = true},
                          {.a = rows, .b = squares},
                          {.a = rows, .b = rows, .c = DType::f32, .accumulate = true}})
      EXPECT_EQ(refusal(m), fine);
  }
  if (fp8() && !hopper()) {
    for (const Mode& m : {Mode{.a = one, .b = one}, {.a = many, .b = many}}) EXPECT_EQ(refusal(m), fine);
    EXPECT_NE(refusal({.a = rows, .b = squares}).find("needs compute capability 9.0"), std::string::npos);
  }
  if (!fp8()) {
    EXPECT_NE(refusal({.a = one, .b = one}).find("need compute capability 8.9"), std::string::npos);
  }
  EXPECT_NE(refusal({.a = gradients, .b = gradients}), fine);
  EXPECT_EQ(engine_->counts().by[3][2].gemms, 0) << "nothing ran";
}

// One GEMM of several that run together, and a copy of its C.
struct Together {
  Together(const Context& ctx, const tensor::Tensor& a_memory, const Operand& of_a, const tensor::Tensor& b_memory,
           const Operand& of_b, tensor::Tensor c)
      : c_memory(std::move(c)),
        before(c_memory.view().bytes()),
        a(ctx, a_memory, of_a.matrix),
        b(ctx, b_memory, of_b.matrix),
        result(ctx, c_memory, c_memory.view()),
        product{of_a, of_b, result.view()} {
    std::memcpy(before.data(), c_memory.view().data, before.size());
    product.a.matrix = a.view();
    product.b.matrix = b.view();
  }
  tensor::Tensor c_memory;
  std::vector<std::byte> before;
  OnGpu a, b, result;
  std::optional<OnGpu> scale_a{}, scale_b{};
  Product product;
};

// 40 experts, with other numbers of rows and other scales each: more than the arguments of one kernel name.
TEST_F(GemmGpu, ProductsTogetherHaveTheBitsOfSingleOnes) {
  constexpr std::int64_t kIn = 48, kOut = 32;
  for (const bool codes : {false, true}) {
    if (codes && !fp8()) continue;
    for (const bool gradient : {false, true}) {  // of weights, where the contraction differs
      std::vector<std::unique_ptr<Together>> all;
      for (std::uint64_t g = 0; g < 40; ++g) {
        const auto rows = static_cast<std::int64_t>(1 + g * 7 % 19);
        const std::int64_t m = gradient ? kOut : rows, n = gradient ? kIn : kOut, k = gradient ? rows : kIn;
        Matrix c = integers(gradient ? DType::f32 : DType::bf16, m, n, Layout::rows, 3 + g);
        if (codes) {
          const Codes a = make_codes(gradient ? DType::e5m2 : DType::e4m3, m, k, Sharing::one, 50 + g),
                      b = make_codes(DType::e4m3, n, k, Sharing::one, 100 + g);
          all.push_back(std::make_unique<Together>(ctx_, a.memory, a.operand(false), b.memory, b.operand(true),
                                                   std::move(c.memory)));
          Product& p = all.back()->product;
          p.a.inverse_scale = all.back()->scale_a.emplace(ctx_, a.scale_memory, a.scales).view();
          p.b.inverse_scale = all.back()->scale_b.emplace(ctx_, b.scale_memory, b.scales).view();
        } else {
          const Layout of_a = gradient ? Layout::transposed : Layout::rows,
                       of_b = gradient ? Layout::rows : Layout::transposed;
          const Matrix a = integers(DType::bf16, m, k, of_a, 50 + g), b = integers(DType::bf16, k, n, of_b, 100 + g);
          all.push_back(
              std::make_unique<Together>(ctx_, a.memory, plain(a.view), b.memory, plain(b.view), std::move(c.memory)));
        }
      }
      std::vector<Product> products;
      for (const auto& t : all) products.push_back(t->product);
      const MatmulOptions options{.role = GemmRole::wgrad, .accumulate = gradient};
      const std::int64_t counted = engine_->counts().by[2][codes ? 2 : 1].gemms;
      const std::string refusal = test::error_of([&] { engine_->matmul(ctx_, products, options); });
      if (refusal.find("cuBLASLt") != std::string::npos) GTEST_SKIP() << "sizes without a promise: " << refusal;
      ASSERT_EQ(refusal, "no error");
      EXPECT_EQ(engine_->counts().by[2][codes ? 2 : 1].gemms, counted + 40);
      for (const auto& t : all) {
        t->result.fetch();
        const Tensor got(t->c_memory.view().dtype, {t->c_memory.view().shape[0], t->c_memory.view().shape[1]});
        std::memcpy(got.view().data, t->c_memory.view().data, got.view().bytes());
        std::memcpy(t->c_memory.view().data, t->before.data(), t->before.size());
        const OnGpu again(ctx_, t->c_memory, t->c_memory.view());
        engine_->matmul(ctx_, t->product.a, t->product.b, again.view(), options);
        again.fetch();
        ASSERT_EQ(std::memcmp(got.view().data, t->c_memory.view().data, got.view().bytes()), 0)
            << "codes " << codes << " gradient " << gradient << " product " << &t - all.data();
      }
    }
  }
}

TEST_F(GemmGpu, DryRunPlansTheScratchOfTheRun) {
  const Matrix a = integers(DType::bf16, 40, 24, Layout::rows, 1), b = integers(DType::bf16, 24, 32, Layout::rows, 2);
  const Matrix bias = integers(DType::f32, 1, 32, Layout::rows, 4), c = integers(DType::bf16, 40, 32, Layout::rows, 3);
  const MatmulOptions options{.bias = bias.view.reshaped({32})};
  Engine planned;
  Context dry = ctx_;
  dry.dry = true;
  const auto there = [](View v) {
    v.device = DeviceType::cuda;
    return v;
  };
  MatmulOptions options_there = options;
  options_there.bias = there(options.bias);
  planned.matmul(dry, plain(there(a.view)), plain(there(b.view)), there(c.view), options_there);
  multiply(plain(a.view), a.memory, plain(b.view), b.memory, c.view, c.memory, options);
  EXPECT_EQ(planned.scratch_bytes(), engine_->scratch_bytes());
  EXPECT_EQ(planned.counts().by[3][1].gemms, 0);
}

}  // namespace
}  // namespace fp8::gemm::testing
