/// Scratch memory of GEMMs on a device, which a dry run sizes without the device. Private to this crate.
#pragma once

#include <algorithm>

#include "device_plan.h"
#include "fp8/base/round.h"
#include "group_arrays.h"
#include "scratch.h"

namespace fp8::gemm {

/// Bytes of workspace for a kernel, as cuBLAS uses on Hopper.
/// Source: cuBLAS manual, cublasSetWorkspace(), 32 MiB for compute capability 9.0.
inline constexpr std::size_t kWorkspace = std::size_t{32} << 20;

/// The parts of the scratch memory, which all calls share.
struct DeviceScratch {
  Scratch workspace{device::DeviceType::cuda};  ///< of the library
  Scratch sums{device::DeviceType::cuda};       ///< f32 results that are rounded or scaled afterwards
  Scratch broadcast{device::DeviceType::cuda};  ///< inverse scales
  Scratch arrays{device::DeviceType::cuda};     ///< GroupArrays
  std::int64_t capacity = 0;                    ///< GEMMs for which `arrays` has room

  /// Records the needs of a call.
  void need(const DeviceCall& call) {
    if (call.plan.k > 0) workspace.need(kWorkspace);
    sums.need(call.sums_bytes());
    broadcast.need(call.broadcast_bytes());
  }
  /// Records the needs of so many GEMMs that are computed together.
  void need_together(std::size_t groups) {
    constexpr std::int64_t kStep = 64;
    workspace.need(kWorkspace);
    capacity = std::max(capacity, round_up(static_cast<std::int64_t>(groups), kStep));
    arrays.need(GroupArrays::bytes(capacity));
  }
  /// Bytes of all parts.
  std::size_t bytes() const { return workspace.bytes() + sums.bytes() + broadcast.bytes() + arrays.bytes(); }
};

}  // namespace fp8::gemm
