// The report of a collector on one linear layer: its operands, how often each is counted, and the error of the
// products.
#include "fp8/statistics/collector.h"

#include <cmath>

#include "fp8/device/arena.h"
#include "fp8/json/json.h"
#include "fp8/statistics/records.h"
#include "fp8_test.h"

namespace fp8::statistics {
namespace {

using dtype::Bf16;
using dtype::DType;
using gemm::GemmRole;
using linear::Pass;
using quant::Granularity;
using tensor::Tensor;

constexpr std::int64_t kM = 48, kK = 64, kN = 96;

Tensor filled(std::int64_t rows, std::int64_t cols, double factor) {
  Tensor t(DType::bf16, {rows, cols});
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const double v = factor * std::sin(0.7 * static_cast<double>(i)) * std::exp(std::cos(static_cast<double>(i)));
    t.as<Bf16>()[i] = dtype::to_bf16(static_cast<float>(v));
  }
  return t;
}

double at(const Tensor& t, std::int64_t r, std::int64_t c) {
  return static_cast<double>(dtype::to_float(t.as<Bf16>()[r * t.view().shape[1] + c]));
}

// A layer of two parts, numbers 3 and 4.
class Layer : public ::testing::Test {
 protected:
  Collector collector(bool groups = false) { return Collector(*one_, {.linears = {0, 0, 0, 1, 1}, .groups = groups}); }
  void run(Collector& c, const std::string& recipe, const quant::GemmSet& gemms = {}, bool recomputes = false) {
    const quant::Recipe& r = quant::find_recipe(recipe);
    const linear::LinearPrecision precision{&r, {.power_of_2 = r.power_of_2, .fold = true}, {}, &c};
    const std::vector<linear::Part> parts{{0, 32, true, gemms, 3}, {32, kN, true, gemms, 4}};
    const auto prepared = [&](Pass pass) { return linear::prepare(ctx_, w_.view(), {}, parts, precision, pass); };
    const Tensor y(DType::bf16, {kM, kN}), dx(DType::bf16, {kM, kK}), dw(DType::f32, {kN, kK});
    linear::forward(ctx_, engine_, prepared(Pass::forward), x_.view(), y.view());
    if (recomputes) linear::forward(ctx_, engine_, prepared(Pass::recompute), x_.view(), y.view());
    linear::backward(ctx_, engine_, prepared(Pass::backward), x_.view(), dy_.view(), {dx.view(), dw.view(), {}});
  }
  // |product - exact| / |exact| of the forward GEMM of rows [begin, end) of w, from dequantized operands.
  double forward_error(const std::string& recipe, std::int64_t begin, std::int64_t end) {
    const quant::Recipe& r = quant::find_recipe(recipe);
    const quant::CastOptions options{.power_of_2 = r.power_of_2, .rule = r.scale_rule};
    const auto last = quant::ContractionAxis::last;
    const View x = quant::dequantize(ctx_, quant::quantize(ctx_, x_.view(), r.forward.x, last, options));
    const View w =
        quant::dequantize(ctx_, quant::quantize(ctx_, w_.view().rows(begin, end), r.forward.w, last, options));
    double error = 0, size = 0;
    for (std::int64_t m = 0; m < kM; ++m)
      for (std::int64_t n = 0; n < end - begin; ++n) {
        double exact = 0, is = 0;
        for (std::int64_t k = 0; k < kK; ++k) {
          exact += at(x_, m, k) * at(w_, begin + n, k);
          is += static_cast<double>(x.as<float>()[m * kK + k]) * static_cast<double>(w.as<float>()[n * kK + k]);
        }
        is = static_cast<double>(dtype::to_float(dtype::to_bf16(static_cast<float>(is))));  // rounded like y
        error += (is - exact) * (is - exact);
        size += exact * exact;
      }
    return std::sqrt(error / size);
  }

  device::Arena arena_{std::size_t{64} << 20, device::DeviceType::host};
  Context ctx_{device::DeviceType::host, nullptr, &arena_};
  gemm::Engine engine_;
  std::unique_ptr<comm::Communicator> one_ = comm::solo();
  Tensor x_ = filled(kM, kK, 1), w_ = filled(kN, kK, 0.02), dy_ = filled(kM, kN, 1e-6);
};

std::string names(const Results& r) {
  std::string text;
  for (const OperandResult& o : r.operands)
    text += std::to_string(o.linear) + "fdw"[static_cast<int>(o.gemm)] + "iwg"[static_cast<int>(o.operand)] + " ";
  return text;
}

TEST_F(Layer, EveryOperandOfEveryGemmIsReported) {
  Collector c = collector();
  run(c, "tensorwise");
  const Results r = c.end();
  EXPECT_EQ(names(r), "3fi 3fw 3dw 3dg 3wi 3wg 4fi 4fw 4dw 4dg 4wi 4wg ");
  EXPECT_EQ(r.products.size(), 6u);
  for (const OperandResult& o : r.operands) {
    const bool gradient = o.operand == Operand::grad_output;
    EXPECT_EQ(o.format, gradient ? DType::e5m2 : DType::e4m3);
    EXPECT_EQ(o.granularity, Granularity::tensor);
    const std::int64_t rows = o.linear == 3 ? 32 : kN - 32;
    EXPECT_EQ(o.figures.elements, o.operand == Operand::input    ? kM * kK
                                  : o.operand == Operand::weight ? rows * kK
                                                                 : kM * rows);
    EXPECT_EQ(o.figures.scale_range().min, (gradient ? 57344.0f : 448.0f) / o.figures.amax);
    EXPECT_GT(o.figures.sqnr_db(), gradient ? 24 : 30);
  }
  for (const ProductResult& p : r.products) EXPECT_LT(p.relative_error, 0.1);
}

TEST_F(Layer, ProductsOfAGradientOfZerosAreExact) {
  dy_ = filled(kM, kN, 0);
  Collector c = collector();
  run(c, "tensorwise");
  for (const ProductResult& p : c.end().products)
    EXPECT_TRUE(p.gemm == gemm::GemmRole::forward ? p.relative_error > 0 : p.relative_error == 0) << p.relative_error;
}

TEST_F(Layer, OnlyWhatIsCastIsReported) {
  Collector c = collector();
  run(c, "rowwise_with_gw_hp");
  EXPECT_EQ(names(c.end()), "3fi 3fw 3dw 3dg 4fi 4fw 4dw 4dg ");
  c.begin();
  run(c, "tensorwise", {false, false, true});
  EXPECT_EQ(names(c.end()), "3wi 3wg 4wi 4wg ");
}

TEST_F(Layer, TheErrorOfAProductIsThatOfItsOperands) {
  for (const char* recipe : {"tensorwise", "rowwise", "current", "blockwise", "mxfp8"}) {
    Collector c = collector();
    run(c, recipe);
    const Results r = c.end();
    EXPECT_NEAR(r.products.at(0).relative_error, forward_error(recipe, 0, 32), 1e-5) << recipe;
    EXPECT_NEAR(r.products.at(3).relative_error, forward_error(recipe, 32, kN), 1e-5) << recipe;
  }
}

TEST_F(Layer, RecomputedGemmsAreNotCountedAgain) {
  Collector once = collector(), again = collector();
  run(once, "rowwise");
  run(again, "rowwise", {}, true);
  const Results a = once.end(), b = again.end();
  ASSERT_EQ(names(a), names(b));
  for (std::size_t i = 0; i < a.operands.size(); ++i)
    EXPECT_EQ(a.operands[i].figures.elements, b.operands[i].figures.elements);
}

TEST_F(Layer, MicroBatchesAddUpAndAWeightCountsOnce) {
  Collector c = collector();
  run(c, "tensorwise");
  run(c, "tensorwise");
  for (const OperandResult& o : c.end().operands) {
    const std::int64_t rows = o.linear == 3 ? 32 : kN - 32;
    EXPECT_EQ(o.figures.elements, o.operand == Operand::input    ? 2 * kM * kK
                                  : o.operand == Operand::weight ? rows * kK
                                                                 : 2 * kM * rows);
  }
}

// Only some experts have rows in a dry run, but all may have them later.
TEST_F(Layer, ADryRunPlansForAnExpertWithoutRows) {
  const auto peak = [&](const CollectorOptions& options) {
    device::Arena dry;
    ctx_.arena = &dry, ctx_.dry = true;
    Collector c(*one_, options);
    run(c, "rowwise");
    return dry.peak();
  };
  const std::size_t observed = peak({.linears = {0, 0, 0, 1, 0, 0}});
  EXPECT_EQ(peak({.linears = {0, 0, 0, 0, 0, 1}, .experts = {0, 0, 0, 1, 0, 1}}), observed);
  EXPECT_LT(peak({.linears = {0, 0, 0, 0, 0, 1}, .experts = {0, 0, 0, 1, 0, 0}}), observed) << "no expert is observed";
}

TEST_F(Layer, APausedCollectorObservesNothing) {
  Collector c = collector();
  c.pause();
  run(c, "tensorwise");
  EXPECT_TRUE(c.end().operands.empty());
}

TEST_F(Layer, RecordsHaveTheDocumentedMembers) {
  Collector c = collector(true);
  run(c, "blockwise");
  const std::vector<json::Value> records = records_of(c.end(), "blockwise", [](int n) { return std::to_string(n); });
  ASSERT_EQ(records.size(), 18u);
  const std::string first = json::dump(records[0]);
  EXPECT_EQ(first.find(R"({"type":"operand","linear":"3","gemm":"forward","operand":"input","recipe":"blockwise",)"
                       R"("format":"e4m3","granularity":"1x128","elements":3072,)"),
            0u)
      << first;
  EXPECT_EQ(json::dump(records[2])
                .find(R"({"type":"gemm","linear":"3","gemm":"forward","recipe":"blockwise","relative_error":0.0)"),
            0u);
  const json::Object& blocks = records[0].as_object().get_object("blocks", "record");
  EXPECT_EQ(blocks.get_int("count", "blocks"), kM);
  const auto rows = worst_first(records);
  ASSERT_EQ(rows.size(), 11u) << "forward and dgrad share the cast of each weight";
  EXPECT_EQ(std::ranges::count(rows, "forward,dgrad", [](const auto& row) { return row[1]; }), 2);
  EXPECT_EQ(worst_first(records, 3), std::vector(rows.begin(), rows.begin() + 4));
  for (std::size_t i = 2; i < rows.size(); ++i) {
    EXPECT_LE(std::stod(rows[i][10]), std::stod(rows[i - 1][10]));
    const bool same_gemm = rows[i][1] == rows[i - 1][1] && rows[i][0] == rows[i - 1][0];
    EXPECT_TRUE(!same_gemm || std::stod(rows[i][9]) >= std::stod(rows[i - 1][9]));
  }
}

}  // namespace
}  // namespace fp8::statistics
