// Graphs of attention that cuDNN validates, lowers and has plans for on Hopper, without a GPU. Skipped if the library
// cannot be loaded.
#include <gtest/gtest.h>

#include <string>

#include "../../lib/ops/tests/fused_layer.h"
#include "fp8_test.h"
#include "hopper_graph.h"

namespace fp8::ops {
namespace {

// Number of plans that cuDNN proposes for a call on an H100. Throws Error if cuDNN is missing or refuses the graph.
std::int64_t plans_of(const FusedAttention& call) {
  load_library();
  return planned_on_hopper(call)->get_execution_plan_count();
}

// Without a driver cuDNN selects engines and then cannot compile their kernels; that error is accepted. An engine that
// refuses the graph fails before it needs the driver.
void expect_plans(const FusedAttention& call) {
  if (::testing::Test::IsSkipped()) return;
  const std::string answer = test::error_of([&] { EXPECT_GT(plans_of(call), 0); });
  if (answer.find("cannot be loaded") != std::string::npos) GTEST_SKIP() << answer;
  const bool only_the_driver_is_missing = answer.find("\"smVersion\":900") != std::string::npos &&
                                          answer.find("this->libcuda == nullptr") != std::string::npos;
  EXPECT_TRUE(answer == "no error" || only_the_driver_is_missing) << answer;
}

TEST(CudnnAttention, HasPlansForHopper) {
  for (const Layer& layer : {Layer(2, 200, 8, 2, 64), Layer(1, 129, 4, 1, 128), Layer(4, 2048, 12, 12, 64)})
    for (const auto& call : {layer.forward(), layer.backward()}) expect_plans(call);
  if (::testing::Test::IsSkipped()) return;
  FusedAttention odd = Layer(1, 64, 4, 4, 64).forward();
  odd.dim = 12;
  EXPECT_NE(test::error_of([&] { (void)plans_of(odd); }).find("multiple of 8"), std::string::npos);
}

TEST(CudnnAttention, HasPlansForDocumentsOnHopper) {
  for (const Layer& layer : {Layer(2, 200, 8, 2, 64), Layer(1, 8192, 32, 8, 128)}) {
    for (const Documents& documents : {layer.documents(1, 1), layer.documents(7, 150), layer.documents(9, 9999)})
      for (const auto& call : {layer.forward(documents), layer.backward(documents)})
        expect_plans(parts_of(call, false).each);
  }
  Layer apart(2, 200, 8, 2, 64);  // a table of offsets for every tensor but lse
  const auto stretch = [](View& v, std::int64_t by) {
    v.stride[1] += by * 64;
    v.stride[0] = v.shape[1] * v.stride[1];
  };
  stretch(apart.k, 1);
  stretch(apart.v, 2);
  stretch(apart.dout, 1);
  stretch(apart.dq, 4);
  stretch(apart.dk, 5);
  stretch(apart.dv, 6);
  const FusedAttention call = apart.backward(apart.documents(7, 150));
  EXPECT_EQ(call.steps().size(), 9u);
  expect_plans(call);
}

}  // namespace
}  // namespace fp8::ops
