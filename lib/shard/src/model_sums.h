// Sums of numbers of parameters over the ranks of one copy of the model. Private to the crate.
#pragma once

#include "fp8/comm/mesh.h"
#include "fp8/device/profile.h"
#include "fp8/tensor/tensor.h"

namespace fp8::shard {

// Adds `values`, f64 on the context's device, over the ranks of mesh.model(). Collective.
inline void sum_over_model(const device::Context& ctx, const comm::Mesh& mesh, const tensor::View& values) {
  const device::Timer timer(
      ctx, comm::exchange_span("all-reduce", device::ExchangeKind::all_reduce, mesh.model(), tensor::bytes_of(values)));
  if (ctx.dry) return;
  mesh.traffic().add_all_reduce(comm::Along::several, mesh.model(), values.dtype, values.size());
  mesh.model().sum_here(std::span(values.as<double>(), static_cast<std::size_t>(values.size())));
}

}  // namespace fp8::shard
