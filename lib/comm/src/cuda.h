/// The halves of on_device() that need CUDA. Builds without CUDA have a stand-in. Private to comm.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "fp8/comm/comm.h"

namespace fp8::comm::cuda {

/// See on_device(); for several ranks, by NCCL.
std::unique_ptr<Communicator> nccl(Communicator& host, const device::Context& ctx, bool reduce_scatters);
/// See on_device(); for one rank, without NCCL.
std::unique_ptr<Communicator> solo(Communicator& host, const device::Context& ctx);
/// Clears the sign bits of values in device memory, in stream order. Throws if the launch fails.
void clear_signs(const device::Context& ctx, std::span<float> values);
/// Whether NCCL starts the kernels of several communicators in the order of the program. Without it two ranks could
/// each run the kernel for which the other one has no room yet.
bool orders_groups();
/// See device_library_version().
std::string version();

}  // namespace fp8::comm::cuda
