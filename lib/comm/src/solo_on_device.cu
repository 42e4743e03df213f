// A group of one rank on a device: every collective is the identity or a copy in stream order. NCCL is not needed.
#include "cuda.h"
#include "of_device.h"
#include "one_rank.h"

namespace fp8::comm::cuda {
namespace {

class SoloOnDevice final : public OneRank<OfDevice> {
 public:
  using OneRank::OneRank;
  SoloOnDevice(std::unique_ptr<Communicator> host, const device::Context& ctx) : OneRank(*host, ctx) {
    owned_ = std::move(host);
  }
  void sum_here(std::span<double>) override {}
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    return std::make_unique<SoloOnDevice>(host_.split(color, key, name), ctx_);
  }

 private:
  void copy(const void* from, void* to, std::int64_t bytes) const override {
    using device::DeviceType;
    device::copy_bytes(ctx_, to, DeviceType::cuda, from, DeviceType::cuda, static_cast<std::size_t>(bytes));
  }
  void clear(std::span<float> values) const override { clear_signs(ctx_, values); }
  std::unique_ptr<Communicator> owned_;
};

}  // namespace

std::unique_ptr<Communicator> solo(Communicator& host, const device::Context& ctx) {
  return std::make_unique<SoloOnDevice>(host, ctx);
}

}  // namespace fp8::comm::cuda
