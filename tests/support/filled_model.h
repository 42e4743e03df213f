/// Weights for a ShardedModel that no checkpoint has.
#pragma once

#include <vector>

#include "fp8/dtype/convert.h"
#include "fp8/shard/sharded_model.h"

namespace fp8::test {

/// Fills the own rows of every master weight and refreshes the compute weights. `values(parameter, begin, end)` returns
/// rows [begin, end) of the parameter with this number as floats. Collective.
template <class Values>
void fill_masters(shard::ShardedModel& model, Values&& values) {
  for (const shard::ParameterShard& own : model.store.shards()) {
    if (own.rows.count() == 0) continue;
    const std::vector<float> floats = values(own.number, own.rows.begin, own.rows.end);
    std::vector<std::byte> stored(own.master.bytes());
    dtype::from_floats(floats, own.master.dtype, stored.data());
    device::copy_bytes(model.ctx, own.master.data, model.ctx.device, stored.data(), device::DeviceType::host,
                       stored.size());
  }
  model.store.refresh_compute_weights(model.ctx);
}

}  // namespace fp8::test
