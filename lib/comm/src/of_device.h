/// Operations that communicators on device memory leave to the host communicator of the same ranks. Private to comm.
#pragma once

#include "fp8/comm/comm.h"
#include "fp8/device/device.h"

namespace fp8::comm::cuda {

/// Everything that is not memory of a device goes to `host_`.
class OfDevice : public Communicator {
 public:
  /// Both outlive it.
  OfDevice(Communicator& host, const device::Context& ctx) : host_(host), ctx_(ctx) {}

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  device::DeviceType device() const override { return device::DeviceType::cuda; }
  void barrier() override {
    device::synchronize(ctx_);
    host_.barrier();
  }
  using Communicator::all_reduce;
  void all_reduce(std::span<double> values, Reduce op) override { host_.all_reduce(values, op); }
  void all_reduce(std::span<std::int64_t> values, Reduce op) override { host_.all_reduce(values, op); }
  void broadcast(std::span<std::byte> bytes, int root) override { host_.broadcast(bytes, root); }
  std::vector<std::string> all_gather(const std::string& text) override { return host_.all_gather(text); }
  bool watch(double seconds, const std::function<void(const watchdog::Stall&)>& on_stall) override {
    return host_.watch(seconds, on_stall);
  }
  watchdog::ProgressTable& progress() override { return host_.progress(); }
  std::string text_of_rank(int rank) const override { return host_.text_of_rank(rank); }

 protected:
  Communicator& host_;   ///< communicator of the same ranks on the host
  device::Context ctx_;  ///< device and stream
};

}  // namespace fp8::comm::cuda
