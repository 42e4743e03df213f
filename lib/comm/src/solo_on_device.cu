// A group of one rank on a device: every collective is the identity or a copy in stream order. NCCL is not needed.
#include "blocks.h"
#include "cuda.h"
#include "fp8/device/cuda.h"
#include "fp8/device/magnitudes.h"
#include "of_device.h"

namespace fp8::comm::cuda {
namespace {

class SoloOnDevice final : public OfDevice {
 public:
  using OfDevice::OfDevice;
  SoloOnDevice(std::unique_ptr<Communicator> host, const device::Context& ctx) : OfDevice(*host, ctx) {
    owned_ = std::move(host);
  }
  using OfDevice::all_reduce;
  void all_reduce(std::span<float> values, Reduce op) override {
    if (op == Reduce::amax && !values.empty())
      device::clear_signs(device::CudaLauncher(ctx_), values.data(), std::ssize(values));
  }
  void sum_here(std::span<double>) override {}
  Request start_all_gather(const std::byte* mine, std::byte* all, std::span<const std::int64_t> bytes_of) override {
    copy(mine, all, offsets_of(bytes_of, 1, "all-gather").back());
    return {};
  }
  Request start_reduce_scatter(float* full, float* mine, std::span<const std::int64_t> count_of) override {
    copy(full, mine, offsets_of(count_of, 1, "reduce-scatter").back() * static_cast<std::int64_t>(sizeof(float)));
    return {};
  }
  Request start_all_reduce(std::span<float> values, Reduce op) override {
    all_reduce(values, op);
    return {};
  }
  Request start_all_to_all(const std::byte* from, std::span<const std::int64_t> bytes_to, std::byte* to,
                           std::span<const std::int64_t> bytes_from) override {
    copy(from, to, exchanged_blocks(bytes_to, bytes_from, 0, 1).sent.back());
    return {};
  }
  Request start_send(const std::byte* from, std::int64_t bytes, int to) override {
    return host_.start_send(from, bytes, to);  // refuses it
  }
  Request start_receive(std::byte* to, std::int64_t bytes, int from) override {
    return host_.start_receive(to, bytes, from);  // refuses it
  }
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    return std::make_unique<SoloOnDevice>(host_.split(color, key, name), ctx_);
  }

 private:
  void copy(const void* from, void* to, std::int64_t bytes) const {
    using device::DeviceType;
    if (from != to && bytes > 0)
      device::copy_bytes(ctx_, to, DeviceType::cuda, from, DeviceType::cuda, static_cast<std::size_t>(bytes));
  }
  std::unique_ptr<Communicator> owned_;
};

}  // namespace

std::unique_ptr<Communicator> solo(Communicator& host, const device::Context& ctx) {
  return std::make_unique<SoloOnDevice>(host, ctx);
}

}  // namespace fp8::comm::cuda
