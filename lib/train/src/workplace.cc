// Choosing and opening a device, the same on all ranks, before anything else is done.
#include "workplace.h"

#include <algorithm>

namespace fp8::train {
namespace {

using device::Place;

constexpr int kFirstFp8 = 89;  // compute capability of the first chips with FP8 matmuls

// Whether every rank has a GPU of its own; otherwise, why this one has not.
std::string why_not_cuda() {
  const int devices = device::cuda_device_count();
  if (devices == 0) return device::why_no_cuda();
  if (comm::local_rank() < devices) return {};
  return std::to_string(devices) + (devices == 1 ? " GPU serves one rank" : " GPUs serve as many ranks") +
         ", and there are more on this machine";
}

Place choose(std::optional<Place> wanted, comm::Communicator& world) {
  if (wanted == Place::host) return Place::host;
  const std::string why = why_not_cuda();
  if (wanted)
    comm::agree(world, [&] {
      if (!why.empty()) throw Error("--device cuda: " + why);
    });
  std::int64_t can = why.empty() ? 1 : 0;
  world.all_reduce(std::span<std::int64_t>(&can, 1), comm::Reduce::min);
  return can != 0 ? Place::cuda : Place::host;
}

}  // namespace

void check_fp8(const PrecisionConfig& precision, Place place, int capability, const std::string& name) {
  const bool native = precision.precision == Precision::fp8 && !precision.emulate && place == Place::cuda;
  if (native && capability < kFirstFp8)
    throw Error("--precision fp8: " + name + " has no FP8 matmul: --emulate multiplies FP8 values as bf16, " +
                "--device cpu does so too, and --precision bf16 has none");
}

Workplace::Workplace(std::optional<Place> wanted, const PrecisionConfig& precision, comm::Communicator& world) {
  const Place place = choose(wanted, world);
  comm::agree(world, [&] {
    device_ = std::make_unique<device::Device>(place, place == Place::host ? 0 : comm::local_rank());
    context_ = device_->context();
    check_fp8(precision, place, device_->compute_capability(), device_->name());
  });
  group_ = comm::on_device(world, context_);
}

}  // namespace fp8::train
