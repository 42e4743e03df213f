/// The device of a rank, the host or a GPU, and the communicator that moves its memory.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fp8/comm/mesh.h"
#include "fp8/settings/config.h"

namespace fp8::train {

using device::Context;

/// Throws Error naming alternatives if FP8 without emulation is requested on a GPU below compute capability 8.9 (89),
/// or sums of a tensor core on a GPU.
void check_fp8(const settings::PrecisionConfig& precision, device::DeviceType device, int capability,
               const std::string& name);

/// Index of the GPU of a rank that sees `devices` of them: the rank's number on its machine, or 0 if there is only one,
/// since launchers may show each rank only its own.
int gpu_of(int local_rank, int devices);

/// The reason why a rank that sees `devices` GPUs has none of its own at `index`; empty if it has one, as far as this
/// rank alone can tell.
std::string why_not_cuda(int devices, int index);

/// The reason why ranks cannot use their GPUs: two of `cards`, the cuda_identity() of each rank's GPU, are equal. Empty
/// if no two are. A rank without a GPU has an empty card. `ranks` names them.
std::string why_shared(std::span<const std::string> cards, const comm::Communicator& ranks);

/// Why all ranks compute on the CPU though some have a GPU, for the user; empty if each rank has one or none has.
/// `cards` and `ranks` as in why_shared().
std::string note_of_cpu(std::span<const std::string> cards, const comm::Communicator& ranks);

/// The device of this rank and its communicator.
class DeviceSetup {
 public:
  /// Opens the device `wanted`; by default a GPU if every rank has one, otherwise the host. All ranks use the same type
  /// of device, and no two the same GPU. Throws AgreedError naming what is missing, as check_fp8() too. GEMMs that the
  /// library of the device does not offer are found by plan_memory(). With `plan_only` a GPU that is wanted need not
  /// exist: the context then has no stream, and is for dry runs. The ranks of `host` outlive it. Collective.
  DeviceSetup(std::optional<device::DeviceType> wanted, const settings::PrecisionConfig& precision,
              const comm::Mesh& host, bool plan_only = false);
  /// On the device, without an arena.
  const Context& context() const { return context_; }
  device::DeviceType type() const { return context_.device; }
  /// The mesh of the ranks; moves memory of the device between them.
  const comm::Mesh& mesh() const { return mesh_; }
  /// "CPU", or the GPU's name; "GPU" if none was opened.
  std::string name() const { return device_ ? device_->name() : "GPU"; }
  /// A note for the user if the CPU was selected though some ranks have a GPU; else empty. It is the same on all ranks.
  const std::string& note() const { return note_; }

 private:
  std::string note_;
  std::unique_ptr<device::Device> device_;
  Context context_;
  comm::Mesh host_, mesh_;
};

}  // namespace fp8::train
