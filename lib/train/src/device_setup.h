// Where a rank computes: the host, or the GPU with its number on this machine; and the group that moves its memory.
// Private to the crate.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fp8/comm/device.h"
#include "fp8/train/config.h"

namespace fp8::train {

// Throws Error naming what may be done instead where FP8 is asked for of a GPU before compute capability 8.9 (89) and
// not emulated.
void check_fp8(const PrecisionConfig& precision, device::DeviceType device, int capability, const std::string& name);

// The GPU of a rank that sees `devices` of them: the one with its number on the machine, or the only one, since
// launchers may show every rank just its own.
int gpu_of(int local_rank, int devices);

// Why ranks cannot have the cards they have found, by rank, as cuda_identity() tells; empty where no two are the same.
// One that is empty is nobody's.
std::string why_shared(std::span<const std::string> cards);

class DeviceSetup {
 public:
  // `wanted`: nothing means a GPU where every rank has one, else the host. Every rank works at the same kind of device,
  // a GPU serves one rank. Throws AgreedError naming what is missing, also where the chip has no FP8 and it is asked
  // for; products that the chip's library does not offer are found by the dry run of plan_memory(). Collective. `world`
  // outlives it.
  DeviceSetup(std::optional<device::DeviceType> wanted, const PrecisionConfig& precision, comm::Communicator& world);
  // Without an arena, which comes from a plan.
  const Context& context() const { return context_; }
  device::DeviceType type() const { return context_.device; }
  // Moves memory of this device between the ranks.
  comm::Communicator& group() const { return *group_; }
  // "CPU", or the GPU's name.
  std::string name() const { return device_->name(); }

 private:
  std::unique_ptr<device::Device> device_;
  Context context_;
  std::shared_ptr<comm::Communicator> group_;
};

}  // namespace fp8::train
