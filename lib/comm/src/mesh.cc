// Coordinates of ranks, and the split of a job along dimensions.
#include "fp8/comm/mesh.h"

#include <set>
#include <string>

#include "cuda.h"
#include "imagined.h"

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
  const bool of_experts = (dimensions & (kEp | kExpertShard)) != 0;
  const Axis inner = of_experts ? Axis{kEp, shape.ep} : Axis{kTp, shape.tp};
  const Axis outer =
      of_experts ? Axis{kExpertShard, shape.dp_shard * shape.tp / shape.ep} : Axis{kDpShard, shape.dp_shard};
  int first = 0, stride = 1;
  for (const Axis& axis : {inner, outer, Axis{kDpReplicate, shape.dp_replicate}, Axis{kPp, shape.pp}}) {
    if ((dimensions & axis.dimension) == 0) first += rank / stride % axis.size * stride;
    stride *= axis.size;
  }
  return first;
}

Mesh::Mesh(Communicator& all) : Mesh(all, {1, all.size(), 1, 1, 1}) {}

Mesh::Mesh(Communicator& all, const MeshShape& shape)
    : Mesh(not_owned(all), shape, [&](unsigned dimensions, const char* name) -> std::shared_ptr<Communicator> {
        return all.split(first_of_group(shape, all.rank(), dimensions), all.rank(), name);
      }) {}

Mesh Mesh::imagined(const MeshShape& shape, int rank, int each) {
  const auto group_along = [&](unsigned dimensions) {
    const int first = first_of_group(shape, rank, dimensions);
    std::vector<int> ranks;
    for (int r = 0; r < shape.ranks(); ++r)
      if (first_of_group(shape, r, dimensions) == first) ranks.push_back(r);
    return imagined_group(ranks, rank, each);
  };
  return {group_along(kPp | kDpReplicate | kDpShard | kTp), shape,
          [&](unsigned dimensions, const char*) { return group_along(dimensions); }};
}

Mesh::Mesh(std::shared_ptr<Communicator> of_all, const MeshShape& shape, const Groups& split)
    : shape_(shape), all_(std::move(of_all)) {
  const Communicator& all = *all_;
  if (shape.ranks() != all.size())
    throw Error("a mesh of " + std::to_string(shape.ranks()) + " ranks for " + std::to_string(all.size()));
  if (shape.ep < 1 || shape.dp_shard * shape.tp % shape.ep != 0)
    throw Error("ep " + std::to_string(shape.ep) + " does not divide the " + std::to_string(shape.dp_shard * shape.tp) +
                " ranks that share a copy of the parameters");
  const auto group = [&](unsigned dimensions, int size, const char* name) -> std::shared_ptr<Communicator> {
    if (size == all.size()) return all_;
    if (size == 1) return solo();
    return split(dimensions, name);
  };
  shards_ = group(kDpShard, shape.dp_shard, "dp_shard");
  replicas_ = group(kDpReplicate, shape.dp_replicate, "dp_replicate");
  tensor_ = group(kTp, shape.tp, "tp");
  const int copy = shape.dp_shard * shape.tp;
  copy_ = shape.tp == 1 ? shards_ : shape.dp_shard == 1 ? tensor_ : group(kDpShard | kTp, copy, "dp_shard and tp");
  stages_ = group(kPp, shape.pp, "pp");
  model_ = shape.pp == 1 ? copy_ : copy == 1 ? stages_ : group(kPp | kDpShard | kTp, shape.pp * copy, "a model");
  of_stage_ = shape.dp_replicate == 1 ? copy_
              : copy == 1             ? replicas_
                                      : group(kDpReplicate | kDpShard | kTp, shape.dp_replicate * copy, "a stage");
  experts_ = shape.ep == copy ? copy_ : group(kEp, shape.ep, "ep");
  expert_shards_ = shape.ep == 1 ? copy_ : group(kExpertShard, copy / shape.ep, "dp_shard of experts");
}

// Only the ranks that shard parameters reduce-scatter gradients.
bool Mesh::scatters(const Communicator& group) const {
  return &group == shards_.get() || (shape_.experts && &group == expert_shards_.get());
}

int Mesh::device_communicators() const {
  std::set<const Communicator*> groups;
  for (const auto& group : {all_, shards_, replicas_, tensor_, copy_, model_, stages_, experts_, expert_shards_})
    if (group->size() > 1) groups.insert(group.get());
  int count = 0;
  for (const Communicator* const group : groups) count += scatters(*group) ? 2 : 1;
  return count;
}

Mesh on_device(const Mesh& host, const device::Context& ctx) {
  Mesh there = host;
  const MeshShape& shape = host.shape();
  const bool several = (shape.dp_replicate > 1 && shape.dp_shard > 1) || (shape.ep > 1 && shape.ep < shape.ranks()) ||
                       (shape.tp > 1 && shape.tp < shape.ranks()) || shape.pp > 1;
  if (ctx.device == device::DeviceType::cuda && several)
    agree(host.all(), [] {
      if (!cuda::orders_groups())
        throw Error(
            "copies of sharded parameters on GPUs need NCCL 2.26 or newer without NCCL_LAUNCH_ORDER_IMPLICIT=0");
    });
  there.all_ = on_device(host.all(), ctx, false, host.scatters(host.all()));
  const auto group = [&](Communicator& of) -> std::shared_ptr<Communicator> {
    if (&of == &host.all()) return there.all_;
    using Group = std::shared_ptr<Communicator> Mesh::*;
    for (const Group same : {&Mesh::shards_, &Mesh::tensor_, &Mesh::copy_, &Mesh::stages_})
      if (&of == (host.*same).get() && there.*same != host.*same) return there.*same;
    return on_device(of, ctx, false, host.scatters(of));
  };
  there.shards_ = group(host.shards());
  there.replicas_ = group(host.replicas());
  there.tensor_ = group(host.tensor());
  there.copy_ = group(host.copy());
  there.stages_ = group(host.stages());
  there.model_ = group(host.model());
  there.experts_ = group(host.experts());
  there.expert_shards_ = group(host.expert_shards());
  return there;
}

}  // namespace fp8::comm
