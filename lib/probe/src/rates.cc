// Steps of small models under several recipes, and what steps do not show: memory, links, launches.
#include "fp8/probe/rates.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/device/profile.h"
#include "fp8/device/runtime.h"
#include "fp8/gemm/gemm.h"
#include "fp8/ops/norm.h"
#include "fp8/plan/machine.h"
#include "fp8/tensor/tensor.h"
#include "operation_rates.h"
#include "timed_model.h"

namespace fp8::probe {
namespace {

using device::Context;
using device::DeviceType;
using tensor::Tensor;

constexpr double kLeastOnGpu = 50e-6;  // seconds of a call beside which a synchronization is short
constexpr int kMostSteps = 12;

// Models whose operations have the sizes between which those of others lie, and the lengths of their sequences.
struct Case {
  TimedModelOptions model;
  std::vector<std::int64_t> lengths;
};

std::vector<Case> cases(DeviceType device) {
  const bool gpu = device == DeviceType::cuda;
  const std::int64_t most = gpu ? 8192 : 2048;
  const std::vector<std::string> common{"num_hidden_layers=2", "max_position_embeddings=" + std::to_string(most)};
  const auto with = [&](std::vector<std::string> keys) {
    keys.insert(keys.end(), common.begin(), common.end());
    return keys;
  };
  const std::string heads = "num_attention_heads=", groups = "num_key_value_heads=";
  const auto wide = with(gpu ? std::vector<std::string>{"hidden_size=4096", "intermediate_size=14336", heads + "32",
                                                        groups + "8", "head_dim=128"}
                             : std::vector<std::string>{"vocab_size=32768"}),
             narrow = with(gpu ? std::vector<std::string>{"hidden_size=1024", "intermediate_size=2816", heads + "16",
                                                          groups + "16"}
                               : std::vector<std::string>{"hidden_size=256", "intermediate_size=768", heads + "4",
                                                          groups + "4", "vocab_size=32768"}),
             experts = with({gpu ? "hidden_size=2048" : "hidden_size=256",
                             gpu ? "intermediate_size=768" : "intermediate_size=384", heads + (gpu ? "32" : "4"),
                             groups + "4", "head_dim=64", "num_local_experts=8"});
  const std::vector<std::int64_t> all{most / 32, most / 4, most};
  const std::vector<std::int64_t> some{most / 32, most / 4};
  const char* const dense = "llama-124m";
  return {{{dense, wide, "bf16", most}, all},
          {{dense, wide, "tensorwise", most}, all},
          {{dense, narrow, "bf16", most}, all},
          {{dense, narrow, "tensorwise", most}, all},
          {{dense, wide, "rowwise", most / 4}, some},
          {{dense, wide, "blockwise", most / 4}, some},
          {{dense, wide, "mxfp8", most / 4}, {most / 4}},
          {{dense, narrow, "fp32", most / 4}, some},
          {{"mixtral-tiny", experts, "bf16", most / 4}, some},
          {{"mixtral-tiny", experts, "tensorwise", most / 4}, some}};
}

double now() { return 1e-9 * static_cast<double>(device::now_ns()); }

void measure_steps(const device::Device& device, const RatesOptions& options, OperationRates& rates) {
  const std::vector<Case> all = cases(options.device);
  const double begin = now();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Case& c = all[i];
    TimedModel model(device, c.model);
    for (const std::int64_t length : c.lengths) {
      if (options.progress)
        options.progress("steps of " + std::to_string(length) + " tokens, " + c.model.recipe + ", model " +
                         std::to_string(i + 1) + " of " + std::to_string(all.size()));
      const double share = begin + options.seconds * static_cast<double>(i + 1) / static_cast<double>(all.size());
      for (int steps = 0; steps < kMostSteps && (steps < 3 || now() < share); steps += 3)
        rates.add(model.steps(length, 3));
    }
  }
}

// Bytes/s of one of two ranks of a host that exchange memory: both copy at the same time.
json::Value host_link() {
  constexpr std::size_t kBytes = std::size_t{32} << 20U;
  std::vector<std::vector<std::byte>> from(2, std::vector<std::byte>(kBytes)), to = from;
  double best = 1e9;
  for (int times = 0; times < 8; ++times) {
    const double begin = now();
#pragma omp parallel for num_threads(2) schedule(static, 1)
    for (std::size_t i = 0; i < 2; ++i) std::memcpy(to[i].data(), from[1 - i].data(), kBytes);
    best = std::min(best, now() - begin);
  }
  const double rate = static_cast<double>(kBytes) / best;
  return json::object(
      {{"rate", figure(rate / 3, rate,
                       "copies of 32 MiB by two threads at once; a message through shared memory is copied once or "
                       "twice, and terms are added")},
       {"hop", figure(30e-6, 5e-6, "messages of Open MPI through shared memory, assumed")}});
}

// Bytes/s of copies within the memory of a GPU and from the host.
json::Value gpu_link(const Context& ctx) {
  constexpr std::int64_t kBytes = std::int64_t{256} << 20U;
  const Tensor one(dtype::DType::e4m3, {kBytes}, ctx.device, "a copy"),
      other(dtype::DType::e4m3, {kBytes}, ctx.device, "a copy");
  const Tensor here(dtype::DType::e4m3, {kBytes});
  const auto rate = [&](const tensor::View& from, DeviceType place) {
    double best = 1e9;
    for (int times = 0; times < 8; ++times) {
      const double begin = now();
      device::copy_bytes(ctx, one.view().data, ctx.device, from.data, place, static_cast<std::size_t>(kBytes));
      device::synchronize(ctx);
      best = std::min(best, now() - begin);
    }
    return static_cast<double>(kBytes) / best;
  };
  return json::object(
      {{"rate", figure(rate(here.view(), DeviceType::host), rate(other.view(), ctx.device) / 4,
                       "not measured: between a copy from the host and a quarter of a copy within the GPU's memory")},
       {"hop", figure(4e-6, 2e-6, "NVLink inside a host, assumed")}});
}

// Seconds of the host for a launch, from many launches of the smallest kernel in a row; 0 without launches.
double launch_seconds(const Context& ctx) {
  if (ctx.device == DeviceType::host) return 0;
  constexpr int kLaunches = 2000;
  const Tensor small(dtype::DType::f32, {16}, ctx.device, "zeros");
  double best = 1e9;
  for (int times = 0; times < 5; ++times) {
    device::synchronize(ctx);
    const double begin = now();
    for (int i = 0; i < kLaunches; ++i) ops::zero(ctx, small.view());
    device::synchronize(ctx);
    best = std::min(best, (now() - begin) / kLaunches);
  }
  return best;
}

std::size_t host_memory() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGE_SIZE));
}

json::Value one(double value, const std::string& source) {
  return json::object({{"value", value}, {"source", source}});
}

void add_machine(const device::Device& device, const plan::MeasuredHost& host, json::Object& file) {
  const bool gpu = device.type() == DeviceType::cuda;
  const int gpus = std::max(1, device::cuda_device_count());
  if (gpu) file.set("compute_capability", one(device.compute_capability(), "CUDA"));
  file.set("memory", one(static_cast<double>(gpu ? device::gpu_memory(device.context()) : host_memory()),
                         gpu ? "CUDA" : "the memory of the host, which its ranks share"));
  file.set("ranks_per_host", one(gpu ? gpus : host.cores, gpu ? "GPUs of this host" : "cores of this host"));
  file.set("linked_ranks", one(gpu ? gpus : host.cores, "ranks of this host"));
  file.set("processors", one(1, "the shapes of GEMMs have been measured"));
  if (!gpu) file.set("cores", one(host.cores, "cores that this process could use"));
}

void add_links(const device::Device& device, json::Object& file) {
  const bool gpu = device.type() == DeviceType::cuda;
  const double launch = launch_seconds(device.context());
  file.set("launch", figure(gpu ? 2e-6 : 0, gpu ? 0.8e-6 : 0,
                            gpu ? "gap between kernels, assumed" : "part of the times of operations"));
  file.set("host_launch", figure(launch, launch / 2,
                                 gpu ? "2000 launches of the smallest kernel in a row, and half of that"
                                     : "part of the times of operations"));
  file.set("link", gpu ? gpu_link(device.context()) : host_link());
  file.set("network", json::object({{"rate", figure(1e8, 12.5e9, "not measured: Ethernet of 1 to 100 Gb/s")},
                                    {"hop", figure(50e-6, 5e-6, "not measured")}}));
  file.set("contention", figure(gpu ? 0.15 : 1, gpu ? 0 : 0.5,
                                gpu ? "memory and multiprocessors that NCCL takes, assumed"
                                    : "the cores that compute also copy the messages, assumed"));
}

}  // namespace

json::Value measure_rates(const RatesOptions& options) {
  const device::Device device(options.device);
  const plan::MeasuredHost host = plan::this_host();
  OperationRates rates(options.device == DeviceType::cuda ? kLeastOnGpu : 0);
  measure_steps(device, options, rates);
  if (options.progress) options.progress("links");
  const bool gpu = options.device == DeviceType::cuda;
  json::Value file = json::object(
      {{"name", gpu ? device.name() : host.processor + ", " + counted(host.cores, "core")},
       {"device", gpu ? "cuda" : "cpu"},
       {"host", json::object({{"name", host.name},
                              {"processor", host.processor},
                              {"cores", one(host.cores, "cores that the measuring process could use")}})}});
  json::Object& f = file.as_object();
  add_machine(device, host, f);
  f.set("gemm", rates.gemms());
  f.set("attention", rates.attention());
  f.set("bytes", rates.bytes());
  f.set("operations", rates.operations());
  add_links(device, f);
  return file;
}

}  // namespace fp8::probe
