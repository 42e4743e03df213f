// Coordinates of ranks, and the split of a job along dimensions.
#include "fp8/comm/mesh.h"

#include <string>

#include "cuda.h"

namespace fp8::comm {
namespace {

std::shared_ptr<Communicator> not_owned(Communicator& c) {
  return {&c, [](Communicator*) {}};
}

}  // namespace

int first_of_group(const MeshShape& shape, int rank, unsigned dimensions) {
  struct Axis {
    Dimension dimension;
    int size;
  };
  int first = 0, stride = 1;
  for (const Axis& axis : {Axis{kTp, shape.tp}, Axis{kDpShard, shape.dp_shard}, Axis{kDpReplicate, shape.dp_replicate},
                           Axis{kPp, shape.pp}}) {
    if ((dimensions & axis.dimension) == 0) first += rank / stride % axis.size * stride;
    stride *= axis.size;
  }
  return first;
}

Mesh::Mesh(Communicator& all) : Mesh(all, {1, all.size(), 1, 1, 1}) {}

Mesh::Mesh(Communicator& all, const MeshShape& shape) : shape_(shape), all_(not_owned(all)) {
  if (shape.ranks() != all.size())
    throw Error("a mesh of " + std::to_string(shape.ranks()) + " ranks for " + std::to_string(all.size()));
  const auto group = [&](unsigned dimensions, int size, const char* name) -> std::shared_ptr<Communicator> {
    if (size == all.size()) return all_;
    if (size == 1) return solo();
    return all.split(first_of_group(shape, all.rank(), dimensions), all.rank(), name);
  };
  shards_ = group(kDpShard, shape.dp_shard, "dp_shard");
  replicas_ = group(kDpReplicate, shape.dp_replicate, "dp_replicate");
}

Mesh on_device(const Mesh& host, const device::Context& ctx) {
  Mesh there = host;
  const MeshShape& shape = host.shape();
  if (ctx.device == device::DeviceType::cuda && shape.dp_replicate > 1 && shape.dp_shard > 1)
    agree(host.all(), [] {
      if (!cuda::orders_groups())
        throw Error(
            "copies of sharded parameters on GPUs need NCCL 2.26 or newer without NCCL_LAUNCH_ORDER_IMPLICIT=0");
    });
  there.all_ = on_device(host.all(), ctx);
  const auto group = [&](Communicator& of) { return &of == &host.all() ? there.all_ : on_device(of, ctx); };
  there.shards_ = group(host.shards());
  there.replicas_ = group(host.replicas());
  return there;
}

}  // namespace fp8::comm
