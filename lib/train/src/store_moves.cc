// Movement of a rank's parameters: whole weights gathered one unit ahead, gradients summed and scattered behind
// backward. On one rank nothing moves: the decoder works on the own rows, which are the whole matrices.
#include <algorithm>
#include <utility>

#include "fp8/device/device.h"
#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"
#include "fp8/train/store.h"

namespace fp8::train {

using model::UnitGradients;
using model::UnitWeights;

namespace {

// Of the values of a contiguous view on any device.
Digest digest_of_values(const Context& ctx, const View& v) {
  if (v.device == device::DeviceType::host) return digest_of({static_cast<const std::byte*>(v.data), v.bytes()});
  std::vector<std::byte> copy(v.bytes());
  device::copy_bytes(ctx, copy.data(), device::DeviceType::host, v.data, v.device, v.bytes());
  return digest_of(copy);
}

}  // namespace

// The first and last unit have buffers of their own; layers share two in turn, or have one each.
std::size_t ParameterStore::buffer_of(int unit, bool every_unit) const {
  if (every_unit) return static_cast<std::size_t>(unit);
  if (unit == 0) return 0;
  if (unit == units_ - 1) return 1;
  return 2 + static_cast<std::size_t>(unit % 2);
}

void ParameterStore::allocate_buffers(const Context& ctx) {
  if (group_.size() == 1) return;
  const bool keep = keeps_gathered(), whole_gradients = options_.zero == 1;
  gathered_.resize(keep ? static_cast<std::size_t>(units_) : 4);
  reducing_.resize(!options_.training ? 0 : whole_gradients ? static_cast<std::size_t>(units_) : 4);
  for (int unit = 0; unit < units_; ++unit) {
    for (std::size_t i = 0; i < kSlots; ++i) {
      const SlotState& s = slots_[static_cast<std::size_t>(unit)][i];
      if (!s.present) continue;
      const bool vector = table_[static_cast<std::size_t>(s.parameters.front())].shape.size() == 1;
      View& whole = gathered_[buffer_of(unit, keep)].slot[i];
      if (whole.empty())
        whole = matrix(ctx, s.fp8_gathered ? DType::u8 : options_.compute, s.extent.rows, s.extent.cols, vector,
                       "gathered weights");
      if (!options_.training) continue;
      Reducing& r = reducing_[buffer_of(unit, whole_gradients)];
      if (r.slot[i].empty())
        r.slot[i] = matrix(ctx, DType::f32, s.extent.rows, s.extent.cols, vector, "gradient buffers");
      if (options_.accumulation && !whole_gradients && r.incoming[i].empty() && s.own_rows > 0)
        r.incoming[i] = matrix(ctx, DType::f32, s.own_rows, s.extent.cols, vector, "gradient buffers");
    }
  }
}

ParameterStore::Gathered& ParameterStore::gathered(int unit) { return gathered_[buffer_of(unit, keeps_gathered())]; }

ParameterStore::Reducing& ParameterStore::reducing(int unit) { return reducing_[buffer_of(unit, options_.zero == 1)]; }

void ParameterStore::prefetch(int unit) {
  if (group_.size() == 1 || ctx_.dry || unit < 0 || unit >= units_) return;
  Gathered& g = gathered(unit);
  if (g.unit == unit) return;
  const device::Timer timer(ctx_, device::Work::communication, "start gather", 0);
  g.requests.clear();
  g.unit = unit;
  g.bytes = 0;
  for (std::size_t i = 0; i < kSlots; ++i) {
    const SlotState& s = slots_[static_cast<std::size_t>(unit)][i];
    for (const int number : s.parameters) {
      const model::Parameter& p = table_[static_cast<std::size_t>(number)];
      const ParameterShard& o = shards_[static_cast<std::size_t>(number)];
      const View whole = g.slot[i].rows(p.slot_row, p.slot_row + p.rows());
      g.bytes += tensor::bytes_of(whole);
      g.requests.push_back(shard::start_gather(group_, s.fp8_gathered ? o.codes : o.compute_weight, whole));
    }
  }
}

UnitWeights ParameterStore::unshard(const Context& ctx, int unit, model::Pass pass) {
  prefetch(unit);
  const bool alone = group_.size() == 1;
  if (!alone && !ctx_.dry) {
    Gathered& g = gathered(unit);
    const device::Timer timer(ctx, device::Work::communication, "gather", std::exchange(g.bytes, 0));
    for (comm::Request& r : g.requests) r.wait();
    g.requests.clear();
  }
  UnitWeights w;
  const auto& slots = slots_[static_cast<std::size_t>(unit)];
  const auto whole = [&](std::size_t i) {
    if (!slots[i].present) return View{};
    if (!alone) return gathered(unit).slot[i];
    return slots[i].fp8_gathered ? slots[i].codes_shard : slots[i].compute_shard;
  };
  const auto bias_of = [&](std::size_t i) {
    const bool has =
        i + 1 < kSlots && slots[i + 1].present && slots[i + 1].extent.cols == 1 &&
        table_[static_cast<std::size_t>(slots[i + 1].parameters.front())].role == model::ParameterRole::bias;
    return has ? whole(i + 1) : View{};
  };
  for (std::size_t i = 0; i < kSlots; ++i) {
    const SlotState& s = slots[i];
    if (!s.present) continue;
    if (s.parts.empty() || unit == 0) w.plain[i] = whole(i);
    if (s.parts.empty()) continue;
    if (s.fp8_gathered) {
      const auto last = s.first_scale + static_cast<std::int64_t>(s.parts.size());
      w.matmul[i] = linear::prepare_codes(
          ctx, {whole(i), scales_.rows(s.first_scale, last), inverse_scales_.rows(s.first_scale, last)}, bias_of(i),
          s.parts, options_.fp8, pass);
    } else {
      w.matmul[i] = linear::prepare(ctx, whole(i), bias_of(i), s.parts, options_.fp8, pass);
    }
  }
  return w;
}

void ParameterStore::release(int) {}

void ParameterStore::begin_micro_batch(int index, int count) {
  micro_ = index;
  micro_count_ = count;
}

UnitGradients ParameterStore::gradients(int unit) {
  UnitGradients out;
  const auto& slots = slots_[static_cast<std::size_t>(unit)];
  const bool alone = group_.size() == 1;
  out.accumulate = micro_ > 0 && (alone || options_.zero == 1);
  if (!alone) {
    Reducing& r = reducing(unit);
    if (r.unit >= 0 && r.unit != unit) finish(ctx_, r);
    if (r.unit == unit && !r.requests.empty()) finish(ctx_, r);
  }
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (slots[i].present) out.slot[i] = alone ? slots[i].gradient_shard : reducing(unit).slot[i];
  }
  return out;
}

void ParameterStore::trace_gradients(GradientTrace* trace) {
  trace_ = trace;
  for (Gathered& g : gathered_) g.unit = -1;
}

void ParameterStore::trace_given(int unit) {
  for (std::size_t i = 0; i < kSlots; ++i) {
    const SlotState& s = slots_[static_cast<std::size_t>(unit)][i];
    if (!s.present) continue;
    const View& whole = group_.size() == 1 ? s.gradient_shard : reducing(unit).slot[i];
    for (const int number : s.parameters) {
      const model::Parameter& p = table_[static_cast<std::size_t>(number)];
      trace_->given.push_back({number, digest_of_values(ctx_, whole.rows(p.slot_row, p.slot_row + p.rows()))});
    }
  }
}

void ParameterStore::gradients_done(int unit) {
  if (trace_ != nullptr && !ctx_.dry) trace_given(unit);
  if (group_.size() == 1 || ctx_.dry || (options_.zero == 1 && micro_ + 1 < micro_count_)) return;
  const device::Timer timer(ctx_, device::Work::communication, "start reduce-scatter", 0);
  Reducing& r = reducing(unit);
  r.unit = unit;
  r.add = micro_ > 0 && options_.zero != 1;
  for (std::size_t i = 0; i < kSlots; ++i) {
    const SlotState& s = slots_[static_cast<std::size_t>(unit)][i];
    std::int64_t first = 0;
    for (const int number : s.parameters) {
      const model::Parameter& p = table_[static_cast<std::size_t>(number)];
      const ParameterShard& o = shards_[static_cast<std::size_t>(number)];
      View mine = o.gradient;
      if (r.add && o.rows.count() > 0) mine = r.incoming[i].rows(first, first + o.rows.count());
      first += o.rows.count();
      const View whole = r.slot[i].rows(p.slot_row, p.slot_row + p.rows());
      r.bytes += tensor::bytes_of(whole);
      r.requests.push_back(shard::start_reduce_scatter(group_, whole, mine));
    }
  }
}

void ParameterStore::finish(const Context& ctx, Reducing& r) {
  if (!r.requests.empty()) {
    const device::Timer timer(ctx, device::Work::communication, "reduce-scatter", std::exchange(r.bytes, 0));
    for (comm::Request& q : r.requests) q.wait();
    r.requests.clear();
  }
  if (r.unit >= 0 && r.add) {
    for (std::size_t i = 0; i < kSlots; ++i) {
      const SlotState& s = slots_[static_cast<std::size_t>(r.unit)][i];
      if (s.present && s.own_rows > 0) {
        const View incoming = r.incoming[i].rows(0, s.own_rows);
        ops::add(ctx, s.gradient_shard, incoming, s.gradient_shard);
      }
    }
  }
  r.unit = -1;
}

void ParameterStore::finish_gradients(const Context& ctx) {
  for (Reducing& r : reducing_) finish(ctx, r);
  if (trace_ == nullptr || ctx.dry) return;
  for (const ParameterShard& o : shards_) {
    if (o.rows.count() > 0) trace_->summed.push_back({o.number, digest_of_values(ctx, o.gradient)});
  }
}

}  // namespace fp8::train
