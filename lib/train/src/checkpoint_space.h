// Disk space for the checkpoints of a run. Private to the crate.
#pragma once

#include "fp8/base/lock.h"
#include "fp8/state/journal.h"
#include "fp8/state/space.h"
#include "fp8/train/device_setup.h"
#include "run_setup.h"

namespace fp8::train {

// When a run saves and which checkpoints it keeps. `held`: the lock of its folder, or null.
state::SavePolicy save_policy(const settings::RunConfig& config, const LockedFolder* held);

// The space for the checkpoints of a run on rank 0, and none on other ranks. Allocates nothing. Collective.
state::SpaceForCheckpoints checkpoint_space(const RunSetup& setup, const DeviceSetup& device,
                                            comm::Communicator& host_comm);

// Throws AgreedError if the first save of a run must fail, and warns if a later one must. Collective.
void check_space(const RunSetup& setup, const DeviceSetup& device, comm::Communicator& host_comm,
                 state::Journal& journal);

}  // namespace fp8::train
