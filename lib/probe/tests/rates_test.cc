// Rates of operations from timed calls, and the calls of a model that is timed.
#include <set>

#include "fp8/json/json.h"
#include "fp8_test.h"
#include "operation_rates.h"
#include "timed_model.h"

namespace fp8::probe {
namespace {

using device::Span;
using device::Work;

// An operation of so many microseconds.
Span span(Work work, std::string_view name, double microseconds) {
  Span s{.work = work, .name = name};
  s.end = static_cast<std::int64_t>(1e3 * microseconds);
  return s;
}
Span gemm(double microseconds, std::int64_t m, int gemms, device::OperandKind kind) {
  Span s = span(Work::matmul_forward, "matmul", microseconds);
  s.flops = 1e9, s.mnk = {m, 64, 256}, s.gemms = gemms, s.operands = kind;
  return s;
}

TEST(OperationRates, AreThoseOfTheFastestCallsByNameAndSize) {
  OperationRates rates(5e-6);
  std::vector<Span> spans;
  for (int i = 0; i < 61; ++i) {
    spans.push_back(span(Work::elementwise, "rope", 100 + i));  // the fourth takes 103, the 21st 120 us
    spans.back().bytes = 1e6;
    spans.push_back(span(Work::elementwise, "rope", 10));
    spans.back().bytes = 2e3;
  }
  spans.push_back(span(Work::communication, "gather", 10));
  spans.push_back(span(Work::elementwise, "zero", 1));  // shorter than what counts
  for (Span& s : spans) s.bytes = s.bytes > 0 ? s.bytes : 1e3;
  rates.add(spans);
  const json::Value all = rates.operations();
  ASSERT_EQ(all.as_object().size(), 1u);
  const json::Array& rows = all.as_object().get_object("rope", "").get_array("value", "");
  EXPECT_EQ(rows, json::parse("[[2e3,2e8,2e8],[1e6,8.333e9,9.709e9]]", "rows").as_array());
}

TEST(OperationRates, OfGemmsHaveShapesOfOneEach) {
  OperationRates rates(0);
  rates.add({gemm(1000, 128, 2, device::OperandKind::bf16), gemm(500, 4096, 1, device::OperandKind::bf16),
             gemm(250, 64, 1, device::OperandKind::f32)});
  const json::Value all = rates.gemms();
  const auto value = [&](const char* kind, const char* key) {
    return all.as_object().get_object(kind, "").get_object(key, "").at("value");
  };
  EXPECT_EQ(value("bf16", "rate"), json::parse("[2e12,2e12]", "rate")) << "that of the largest";
  EXPECT_EQ(value("bf16", "shapes"),
            json::parse("[[64.0,64.0,256.0,1e12,1e12],[4096.0,64.0,256.0,2e12,2e12]]", "shapes"));
  EXPECT_EQ(value("f32", "rate"), json::parse("[4e12,4e12]", "rate"));
  EXPECT_EQ(value("fp8_blocks", "rate"), value("bf16", "rate")) << "was not measured";
}

TEST(TimedModel, HasTheOperationsOfAStep) {
  const device::Device host;
  TimedModel model(host, {"tiny", {}, "tensorwise", 64});
  std::set<Work> works;
  for (const Span& s : model.steps(32, 1)) {
    works.insert(s.work);
    EXPECT_GE(s.end, s.begin);
    EXPECT_EQ(s.mnk[1], s.work == Work::attention ? 32 : s.mnk[1]);
  }
  for (const Work w : {Work::matmul_forward, Work::matmul_dgrad, Work::matmul_wgrad, Work::attention, Work::cast,
                       Work::cross_entropy, Work::elementwise, Work::optimizer})
    EXPECT_TRUE(works.contains(w)) << static_cast<int>(w);
}

}  // namespace
}  // namespace fp8::probe
