// The list of state tensors, and their copy in host memory.
#include "fp8/shard/state_tensors.h"

#include "fp8/base/round.h"
#include "fp8/ckpt/tensor_meta.h"
#include "fp8/dtype/e2m1.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/fp4.h"
#include "fp8/shard/store.h"
#include "square.h"

namespace fp8::shard {
namespace {

// The rows that a rank saves of those that it holds together with its replicas and with ranks that have a copy: each
// saves a part.
RowRange share_of(const RowRange& rows, int copies, const comm::Mesh& mesh) {
  const int number = mesh.replicas().rank() * copies + mesh.tensor().rank() % copies;
  const RowRange part = rows_of(rows.count(), number, mesh.replicas().size() * copies);
  return {rows.begin + part.begin, rows.begin + part.end};
}

// A member of each parameter's shard, under a prefix of names.
void add_parameters(const std::vector<model::Parameter>& table, const ParameterStore* store, std::string_view prefix,
                    View ParameterShard::*values, std::vector<StateTensor>& tensors) {
  const bool weight = prefix == ckpt::kWeights;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const model::Parameter& p = table[i];
    if (!weight && !p.trainable) continue;
    if (p.muon && prefix == ckpt::kMomentV) continue;
    StateTensor t{std::string(prefix) + p.name, p.whole_shape(), static_cast<int>(i), weight, {}, {}, {}};
    const std::int64_t packed = weight && !p.trainable ? dtype::packed(p.stored) : 1;  // elements of a byte
    t.shape.back() /= packed;
    if (store != nullptr) {
      const ParameterShard& o = store->shards()[i];
      t.rows = {p.first_row() + o.rows.begin, p.first_row() + o.rows.end};
      if (p.cols() / packed != (t.shape.size() > 1 ? t.shape.back() : 1))
        t.columns = {p.first_col() / packed, (p.first_col() + p.cols()) / packed};
      t.saved =
          store->layout().owns(p) ? share_of(t.rows, p.copies, store->mesh()) : RowRange{t.rows.begin, t.rows.begin};
      t.values = o.*values;
    }
    tensors.push_back(std::move(t));
  }
}

// A tensor that every rank of a group holds.
void add_whole(const comm::Communicator& group, StateTensor t, std::vector<StateTensor>& tensors) {
  t.rows = {0, t.shape[0]};
  t.saved = {0, comm::is_writer(group) ? t.shape[0] : 0};
  tensors.push_back(std::move(t));
}

// The factors of rows or blocks of a parameter that ranks divide, by its rows or by its columns. `t` has the
// shape of the whole along the other dimension.
void add_divided(const ParameterStore& store, const model::Parameter& p, StateTensor t,
                 std::vector<StateTensor>& tensors) {
  const std::int64_t block = t.shape.size() == 1 ? 1 : dtype::is_fp4(p.stored) ? quant::kFp4Block : kSquare;
  const auto axis = static_cast<std::size_t>(p.tensor_parallel_axis);
  const std::int64_t first = (axis == 0 ? p.first_row() : p.first_col()) / block;
  const RowRange own{first, first + t.shape[axis]};
  t.shape[axis] = divide_up(p.whole[axis], block);
  t.rows = axis == 0 ? own : RowRange{0, t.shape[0]};
  if (axis == 1) t.columns = own;
  const comm::Mesh& mesh = store.mesh();
  const bool saves = mesh.shards().rank() == 0 && mesh.replicas().rank() == 0 && mesh.tensor().rank() % p.copies == 0;
  t.saved = saves ? t.rows : RowRange{t.rows.begin, t.rows.begin};
  tensors.push_back(std::move(t));
}

void add_factors(const ParameterStore& store, std::vector<StateTensor>& tensors) {
  for (const ParameterShard& o : store.shards()) {
    if (o.factors.empty()) continue;
    const model::Parameter& p = store.layout().parameter(o.number);
    StateTensor t{std::string(ckpt::kScales) + p.name, {o.factors.shape[0]}, o.number, true, {}, {}, o.factors};
    if (o.factors.rank == 2) t.shape.push_back(o.factors.shape[1]);
    const bool one = o.factors.size() == 1 && o.factors.rank == 1;  // of the whole parameter
    if (p.bounds.empty() || one || (o.factors.rank == 1 && p.tensor_parallel_axis == 1))
      add_whole(store.mesh().of_stage(), std::move(t), tensors);
    else
      add_divided(store, p, std::move(t), tensors);
    if (!o.amax.empty())
      add_whole(store.mesh().of_stage(), {std::string(ckpt::kGlobals) + p.name, {1}, o.number, true, {}, {}, o.amax},
                tensors);
  }
}

void add_scales(const ParameterStore& store, std::vector<StateTensor>& tensors) {
  for (const ScaleState& s : store.scales().states()) {
    const std::string name = std::string(ckpt::kFp8) + s.name;
    const auto add = [&](const char* what, const View& values, bool history) {
      add_whole(store.mesh().all(),
                {name + what, {values.size()}, s.parameter, false, {}, {}, values, s.index, history}, tensors);
    };
    add("/scale", s.scale, false);
    add("/amax_history", s.history, true);
  }
}

}  // namespace

std::vector<StateTensor> state_tensors(const std::vector<model::Parameter>& table, const ParameterStore* store) {
  std::vector<StateTensor> tensors;
  add_parameters(table, store, ckpt::kWeights, &ParameterShard::master, tensors);
  add_parameters(table, store, ckpt::kMomentM, &ParameterShard::m, tensors);
  add_parameters(table, store, ckpt::kMomentV, &ParameterShard::v, tensors);
  if (store == nullptr) return tensors;
  add_factors(*store, tensors);
  add_scales(*store, tensors);
  return tensors;
}

std::vector<StateTensor> state_tensors(const ParameterStore& store) { return state_tensors(store.table(), &store); }

Snapshot::Snapshot(const Context& ctx, const ParameterStore& store) : tensors_(state_tensors(store)) {
  for (StateTensor& t : tensors_) {
    t.values = t.saved_values();
    t.rows = t.saved;
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
    const View saved = from[i].saved_values();
    if (from[i].saved.count() > 0 && saved.data != tensors_[i].values.data) copy_one(ctx, saved, tensors_[i].values);
  }
}

}  // namespace fp8::shard
