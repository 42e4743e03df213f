/// Collectives on device memory, through NCCL unless there is one rank alone. The ranks are those of a host
/// communicator, which carries NCCL's id and everything that is not memory of a device.
#pragma once

#include <memory>

#include "fp8/comm/comm.h"
#include "fp8/device/device.h"

namespace fp8::comm {

/// The ranks of `host`, each with the device of its context, as a communicator whose place() is cuda: floats of
/// all-reduces, all blocks of gathers, scatters and all-to-alls, and messages, lie on the device; the rest goes to
/// `host`, which must outlive it. Collectives take their turn after what the context's stream was given;
/// Request::wait() makes that stream wait, not the host, and so does all_reduce of floats. For a context on the host:
/// `host` itself, not owned. One rank needs no NCCL, but uses it with `always_nccl`, which a check of NCCL needs.
/// Unless the environment sets NCCL_NVLS_ENABLE it is set to 0, so that sums repeat, and NCCL_LAUNCH_ORDER_IMPLICIT to
/// 1: then, with NCCL 2.26 or later, reduce-scatters run beside all-gathers, in a second communicator of NCCL's, if
/// `reduce_scatters` says that there are such; without it they wait for gathers. Collective. Throws Error naming NCCL's
/// when it cannot be loaded or refuses.
std::shared_ptr<Communicator> on_device(Communicator& host, const device::Context& ctx, bool always_nccl = false,
                                        bool reduce_scatters = true);

/// "NCCL 2.28.9" of the library in use; throws Error when it cannot be loaded.
std::string device_library_version();

}  // namespace fp8::comm
