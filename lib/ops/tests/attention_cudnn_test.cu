// Graphs of attention that cuDNN validates, lowers and has plans for on Hopper, without a GPU. Skipped if the library
// cannot be loaded.
#include <gtest/gtest.h>

#include <string>

#include "../src/attention_graph.h"
#include "fp8_test.h"
#include "fused_layer.h"

namespace fp8::ops {
namespace {

// cuDNN's description of an H100 with 80 GB.
constexpr const char* kHopper =
    R"({"deviceName":"NVIDIA H100 80GB HBM3","cudaDeviceId":0,"deviceVer":900,"driverVer":13000,"isTccDriver":0,
"l2CacheSize":52428800,"maxBlockSize":[1024,1024,64],"maxCtasPerSM":32,"maxGridSize":[2147483647,65535,65535],
"maxRegistersPerSM":65536,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,
"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"memClockRateKHz":2619000,"multiProcessorCount":132,"pciDeviceId":0,
"regsPerBlock":65536,"reservedSharedMemoryPerBlock":1024,"smClockRateKHz":1980000,"supportCoopLaunch":1,
"totalGlobalMem":85000000000,"warpSize":32})";

// Number of plans that cuDNN proposes for a call on kHopper. Throws Error if cuDNN is missing or refuses the graph.
std::int64_t plans_of(const FusedAttention& call) {
  load_library();
  const auto device = std::make_shared<fe::DeviceProperties>();
  const auto check = [](const fe::error_t& status) {
    if (status.is_bad()) fail(status.err_msg);
  };
  const std::string json = kHopper;
  check(device->deserialize({json.begin(), json.end()}));
  const auto graph = graph_of(call, 90);
  graph->set_device_properties(device);
  check(graph->validate());
  check(graph->build_operation_graph());
  check(graph->create_execution_plans({fe::HeurMode_t::A}));
  return graph->get_execution_plan_count();
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
    for (const auto& call : {layer.forward(), layer.backward()}) expect_plans(*call);
  if (::testing::Test::IsSkipped()) return;
  FusedAttention odd = *Layer(1, 64, 4, 4, 64).forward();
  odd.dim = 12;
  EXPECT_NE(test::error_of([&] { (void)plans_of(odd); }).find("multiple of 8"), std::string::npos);
}

TEST(CudnnAttention, HasPlansForDocumentsOnHopper) {
  for (const Layer& layer : {Layer(2, 200, 8, 2, 64), Layer(1, 8192, 32, 8, 128)}) {
    for (const Documents& documents : {layer.documents(1, 1), layer.documents(7, 150), layer.documents(9, 9999)})
      for (const auto& call : {layer.forward(documents), layer.backward(documents)}) expect_plans(parts_of(*call).each);
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
  const FusedAttention call = *apart.backward(apart.documents(7, 150));
  EXPECT_EQ(call.steps().size(), 9u);
  expect_plans(call);
}

}  // namespace
}  // namespace fp8::ops
