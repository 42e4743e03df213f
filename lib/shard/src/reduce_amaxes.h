// The reduction of amaxes that an update leaves, and its record. Private to the crate.
#pragma once

#include "fp8/comm/mesh.h"
#include "fp8/device/profile.h"
#include "fp8/shard/shard.h"

namespace fp8::shard {

// amaxes f32 [n] become the largest of a group of ranks; NaN counts as the largest. Collective.
inline void reduce_amaxes(const device::Context& ctx, const comm::Mesh& mesh, comm::Communicator& group,
                          const View& amaxes) {
  const auto count = static_cast<std::size_t>(amaxes.size());
  const device::Timer timer(
      ctx, comm::exchange_span("all-reduce", device::ExchangeKind::all_reduce, group, tensor::bytes_of(amaxes)));
  if (ctx.dry) return;
  mesh.traffic().add_all_reduce(comm::Along::several, group, dtype::DType::f32, amaxes.size());
  group.all_reduce(std::span<float>(amaxes.as<float>(), count), comm::Reduce::amax);
}

}  // namespace fp8::shard
