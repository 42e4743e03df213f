/// Graphs of attention for an H100 that need not be there: cuDNN gets its properties as text.
#pragma once

#include <memory>
#include <string>

#include "../../lib/ops/src/attention_graph.h"

namespace fp8::ops {

/// cuDNN's description of an H100 with 80 GB; 9.28 reads memoryBusWidth, 9.19 does not.
inline constexpr const char* kHopper =
    R"({"deviceName":"NVIDIA H100 80GB HBM3","cudaDeviceId":0,"deviceVer":900,"driverVer":13000,"isTccDriver":0,
"l2CacheSize":52428800,"maxBlockSize":[1024,1024,64],"maxCtasPerSM":32,"maxGridSize":[2147483647,65535,65535],
"maxRegistersPerSM":65536,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,
"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"memClockRateKHz":2619000,"memoryBusWidth":5120,
"multiProcessorCount":132,"pciDeviceId":0,"regsPerBlock":65536,"reservedSharedMemoryPerBlock":1024,
"smClockRateKHz":1980000,"supportCoopLaunch":1,"totalGlobalMem":85000000000,"warpSize":32})";

/// Throws Error "attention: cuDNN: message" unless `status` is good.
inline void check(const fe::error_t& status) {
  if (status.is_bad()) fail(status.err_msg);
}

/// The graph of a call, validated and lowered. The library is loaded. Throws Error if cuDNN refuses it.
inline std::unique_ptr<Graph> built_on_hopper(const FusedAttention& call) {
  const auto device = std::make_shared<fe::DeviceProperties>();
  const std::string json = kHopper;
  check(device->deserialize({json.begin(), json.end()}));
  auto graph = graph_of(call, 90);
  graph->set_device_properties(device);
  check(graph->validate());
  check(graph->build_operation_graph());
  return graph;
}

/// The same graph with proposed plans.
inline std::unique_ptr<Graph> planned_on_hopper(const FusedAttention& call) {
  auto graph = built_on_hopper(call);
  check(graph->create_execution_plans({fe::HeurMode_t::A}));
  return graph;
}

}  // namespace fp8::ops
