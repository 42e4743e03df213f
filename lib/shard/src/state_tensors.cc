// The list of state tensors, and their copy in host memory.
#include "fp8/shard/state_tensors.h"

#include <array>

#include "fp8/ckpt/tensor_meta.h"
#include "fp8/ops/norm.h"

namespace fp8::shard {
namespace {

// A tensor that a checkpoint holds for every parameter.
struct Section {
  std::string_view prefix;  // begin of the name in the file
  View ParameterShard::*values;
  bool weight;
};

constexpr std::array<Section, 3> kSections{{{ckpt::kWeights, &ParameterShard::master, true},
                                            {ckpt::kMomentM, &ParameterShard::m, false},
                                            {ckpt::kMomentV, &ParameterShard::v, false}}};

}  // namespace

std::vector<StateTensor> state_tensors(const std::vector<model::Parameter>& table,
                                       std::span<const ParameterShard> shards) {
  std::vector<StateTensor> tensors;
  for (const Section& section : kSections) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (!section.weight && !table[i].trainable) continue;
      StateTensor t{
          std::string(section.prefix) + table[i].name, table[i].shape, static_cast<int>(i), section.weight, {}, {}};
      if (!shards.empty()) t.rows = shards[i].rows, t.values = shards[i].*section.values;
      tensors.push_back(std::move(t));
    }
  }
  return tensors;
}

std::vector<StateTensor> state_tensors(const ParameterStore& store) {
  std::vector<StateTensor> tensors = state_tensors(store.table(), store.shards());
  for (const ParameterShard& o : store.shards()) {
    if (o.factors.empty()) continue;
    std::vector<std::int64_t> shape{o.factors.shape[0]};
    if (o.factors.rank == 2) shape.push_back(o.factors.shape[1]);
    const RowRange rows{0, store.rank() == 0 ? shape[0] : 0};
    tensors.push_back({std::string(ckpt::kScales) + store.table()[static_cast<std::size_t>(o.number)].name, shape,
                       o.number, true, rows, o.factors, -1, true});
  }
  for (const ScaleState& s : store.scale_states()) {
    const auto add = [&](const char* what, const View& values) {
      const RowRange rows{0, store.rank() == 0 ? values.size() : 0};
      tensors.push_back(
          {std::string(ckpt::kFp8) + s.name + what, {values.size()}, s.parameter, false, rows, values, s.index, true});
    };
    add("/scale", s.scale);
    add("/amax_history", s.history);
  }
  return tensors;
}

Snapshot::Snapshot(const Context& ctx, const ParameterStore& store) : tensors_(state_tensors(store)) {
  for (StateTensor& t : tensors_) {
    const bool never_changes = t.weight && !store.table()[static_cast<std::size_t>(t.parameter)].trainable;
    if (never_changes && ctx.device == device::DeviceType::host) continue;  // refers to the store
    const std::size_t bytes = t.values.bytes();
    t.values.device = device::DeviceType::host;
    if (t.values.empty() || bytes == 0) continue;
    if (ctx.device == device::DeviceType::host) {
      t.values.data = ctx.arena->allocate(bytes, "snapshot");
    } else if (!ctx.dry) {
      memory_.emplace_back(bytes, device::DeviceType::host, "the copy of a checkpoint");
      t.values.data = memory_.back().data();
    }
  }
}

void Snapshot::copy(const Context& ctx, const ParameterStore& store) {
  const auto copy_one = ctx.device == device::DeviceType::host ? ops::copy : tensor::copy_across;
  const std::vector<StateTensor> from = state_tensors(store);
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i].rows.count() > 0 && from[i].values.data != tensors_[i].values.data)
      copy_one(ctx, from[i].values, tensors_[i].values);
  }
}

}  // namespace fp8::shard
