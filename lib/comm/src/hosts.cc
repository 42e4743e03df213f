// Gathers the names of machines.
#include "fp8/comm/hosts.h"

#include <algorithm>
#include <utility>

#include "fp8/base/host.h"

namespace fp8::comm {

std::vector<std::string> hosts(Communicator& world) {
  std::string mine;
  agree(world, [&] { mine = host_name(); });
  return world.all_gather(mine);
}

void name_hosts(Communicator& world) {
  if (world.size() == 1) return;
  std::vector<std::string> names = hosts(world);
  if (std::ranges::count(names, names[0]) < std::ssize(names)) world.progress().set_hosts(std::move(names));
}

}  // namespace fp8::comm
