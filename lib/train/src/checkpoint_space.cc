// The size of a checkpoint is that of a store without memory; rank 0 asks the file system.
#include "checkpoint_space.h"

namespace fp8::train {

state::SavePolicy save_policy(const settings::RunConfig& c, const LockedFolder* held) {
  return {c.out, c.save_every, c.keep, c.milestone_every, c.keep_best, c.save_seconds, c.rolling, held};
}

state::SpaceForCheckpoints checkpoint_space(const RunSetup& setup, const DeviceSetup& device,
                                            comm::Communicator& host_comm) {
  const shard::ShardedModel dry(device.context(), device.mesh(), setup.model_spec, device::Arena());
  const std::uint64_t bytes = state::checkpoint_bytes(host_comm, dry.store);
  state::SpaceForCheckpoints space;
  comm::agree(host_comm, [&] {
    if (comm::is_writer(host_comm))
      space = state::space_for(save_policy(setup.config, nullptr), bytes, setup.position.step, setup.last_step);
  });
  return space;
}

void check_space(const RunSetup& setup, const DeviceSetup& device, comm::Communicator& host_comm,
                 state::Journal& journal) {
  const state::SpaceForCheckpoints space = checkpoint_space(setup, device, host_comm);
  comm::agree(host_comm, [&] {
    if (const std::string refusal = space.refusal(); !refusal.empty()) throw Error(refusal);
  });
  if (const std::string warning = space.warning(); !warning.empty()) journal.warn(setup.position.step, warning);
}

}  // namespace fp8::train
