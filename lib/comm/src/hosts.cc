// Gathers the names of machines.
#include "fp8/comm/hosts.h"

#include "fp8/base/host.h"

namespace fp8::comm {

std::vector<std::string> hosts(Communicator& world) {
  std::string mine;
  agree(world, [&] { mine = host_name(); });
  return world.all_gather(mine);
}

}  // namespace fp8::comm
