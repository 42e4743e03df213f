// Gradients: the buffers of the decoder, their sums over shards and replicas, the norm, and whole gradients for a file.
#include <algorithm>
#include <utility>

#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"
#include "fp8/shard/store.h"
#include "view_bytes.h"

namespace fp8::shard {

using model::UnitGradients;
using tensor::allocate;

namespace {

// The bytes of a contiguous view on any device.
Digest digest_of_values(const Context& ctx, const View& v) {
  if (v.device == device::DeviceType::host) return digest_of({static_cast<const std::byte*>(v.data), v.bytes()});
  std::vector<std::byte> copy(v.bytes());
  device::copy_bytes(ctx, copy.data(), device::DeviceType::host, v.data, v.device, v.bytes());
  return digest_of(copy);
}

// Starts sending each rank its part of the bf16 values `from`, in the order of ranks; each rank's terms of the own part
// arrive in `terms`. `parts`: elements of each rank's part.
comm::Request start_exchange(comm::Communicator& group, const View& from, const View& terms,
                             std::span<const std::int64_t> parts) {
  std::vector<std::int64_t> sent;
  for (const std::int64_t n : parts) sent.push_back(2 * n);
  const std::vector<std::int64_t> received(sent.size(), sent[static_cast<std::size_t>(group.rank())]);
  return group.start_all_to_all(bytes_at(from), sent, static_cast<std::byte*>(terms.data), received);
}

}  // namespace

void ParameterStore::allocate_sums(const Context& ctx) {
  if (!options_.training) return;
  squares_ = allocate(ctx, DType::f64, {std::ssize(table_)}, "scratch");
  allocate_copy_sums(ctx);
  if (const ParameterShard* const tied = tied_embedding())
    tied_terms_ = allocate(ctx, DType::f32, {tied->gradient.size()}, "gradient buffers");
  const std::int64_t replicas = mesh_.replicas().size();
  if (replicas == 1 || options_.reduce == DType::f32) return;
  std::int64_t most = 0;
  for (const auto& unit : slots_)
    for (const SlotState& s : unit)
      if (s.trainable) most = std::max(most, s.gradient_shard.size());
  replica_sent_ = allocate(ctx, DType::bf16, {most}, "gradient buffers");
  replica_terms_ =
      allocate(ctx, DType::bf16, {replicas * rows_of(most, 0, static_cast<int>(replicas)).count()}, "gradient buffers");
}

UnitGradients ParameterStore::gradient_buffers(int unit) {
  UnitGradients out;
  const auto& slots = slots_[static_cast<std::size_t>(unit)];
  out.accumulate = micro_ > 0 && (alone_ || options_.zero == 1);
  if (!alone_) {
    Reducing& r = reducing(unit);
    finish(ctx_, r);
  }
  for (std::size_t i = 0; i < kSlots; ++i) {
    const SlotState& s = slots[i];
    if (s.trainable) out.slot[i] = alone_ ? s.gradient_shard : reducing(unit).slot[i].rows(0, s.extent.rows);
  }
  return out;
}

void ParameterStore::trace_gradients(GradientTrace* trace) {
  trace_ = trace;
  for (Gathered& g : gathered_) g.unit = g.frozen = -1;
}

void ParameterStore::trace_given(int unit) {
  for (std::size_t i = 0; i < kSlots; ++i) {
    const SlotState& s = slots_[static_cast<std::size_t>(unit)][i];
    if (!s.trainable) continue;
    const View& whole = alone_ ? s.gradient_shard : reducing(unit).slot[i];
    for (const int number : s.parameters) {
      const model::Parameter& p = table_[static_cast<std::size_t>(number)];
      trace_->given.push_back({number, digest_of_values(ctx_, s.rows_of(whole, p))});
    }
  }
}

// The gradients of a unit as they are reduced: later micro-batches arrive apart and are added.
std::vector<ParameterStore::Reduced> ParameterStore::reduced_of(Reducing& r, int unit) const {
  std::vector<Reduced> all;
  for (std::size_t i = 0; i < kSlots; ++i) {
    const SlotState& s = slots_[static_cast<std::size_t>(unit)][i];
    if (!s.trainable) continue;
    const std::int64_t ranks = s.shards->size();
    std::int64_t first = 0;
    for (const int number : s.parameters) {
      const model::Parameter& p = table_[static_cast<std::size_t>(number)];
      const ParameterShard& o = shards_[static_cast<std::size_t>(number)];
      const std::int64_t own = o.rows.count(), cols = s.extent.cols;
      Reduced one{s.shards, {o.gradient, s.rows_of(r.slot[i], p)}, {}, {}, p.rows(), cols};
      if (r.add && own > 0) one.f32.mine = r.incoming[i].rows(first, first + own);
      if (options_.reduce != DType::f32 && ranks > 1) {
        const std::int64_t row = p.slot_row - s.first_row;
        one.sent = r.sent[i].rows(row * cols, (row + p.rows()) * cols);
        one.terms = r.terms[i].rows(ranks * first * cols, ranks * (first + own) * cols).reshaped({ranks, own * cols});
      }
      first += own;
      all.push_back(one);
    }
  }
  return all;
}

void ParameterStore::gradients_done(int unit) {
  if (trace_ != nullptr && !ctx_.dry) trace_given(unit);
  const bool last = micro_ + 1 == micro_count_;
  if (ctx_.dry) return;
  if (alone_) return last ? start_replica_sums(unit) : void();
  if (options_.zero == 1 && !last) return;
  const device::Timer timer(ctx_, device::Work::communication, "start reduce-scatter", 0);
  Reducing& r = reducing(unit);
  r.add = micro_ > 0 && options_.zero != 1;
  r.last = last;
  const std::vector<Reduced> all = reduced_of(r, unit);
  if (all.empty()) return;
  r.unit = unit;
  ByGroup tensors;
  for (const Reduced& one : all) {
    const bool narrow = !one.sent.empty();
    const View& sent = narrow ? one.sent : one.f32.whole;
    r.bytes += tensor::bytes_of(sent);
    const std::int64_t elements = sent.size() - one.f32.mine.size();
    mesh_.traffic().add(comm::Along::dp_shard, sent.dtype, elements * static_cast<std::int64_t>(size_of(sent.dtype)));
    if (!narrow) {
      tensors.add(*one.group, one.f32);
      continue;
    }
    ops::copy(ctx_, one.f32.whole, one.sent);
    std::vector<std::int64_t> parts;
    for (int rank = 0; rank < one.group->size(); ++rank)
      parts.push_back(rows_of(one.rows, rank, one.group->size()).count() * one.cols);
    r.exchanges.push_back(start_exchange(*one.group, one.sent, one.terms, parts));
  }
  r.requests = tensors.start(start_reduce_scatters);
}

void ParameterStore::finish(const Context& ctx, Reducing& r) {
  if (r.unit < 0) return;
  {
    const device::Timer timer(ctx, device::Work::communication, "reduce-scatter", std::exchange(r.bytes, 0));
    for (comm::Request& request : r.requests) request.wait();
    r.requests.clear();
    for (comm::Request& exchange : r.exchanges) exchange.wait();
  }
  if (!std::exchange(r.exchanges, {}).empty()) {
    for (const Reduced& one : reduced_of(r, r.unit))
      if (!one.terms.empty() && one.f32.mine.size() > 0) ops::sum_terms(ctx, one.terms, one.f32.mine);
  }
  if (r.add) {
    for (std::size_t i = 0; i < kSlots; ++i) {
      const SlotState& s = slots_[static_cast<std::size_t>(r.unit)][i];
      if (s.trainable && s.own_rows > 0) {
        const View incoming = r.incoming[i].rows(0, s.own_rows);
        ops::add(ctx, s.gradient_shard, incoming, s.gradient_shard);
      }
    }
  }
  if (r.last) start_replica_sums(r.unit);
  r.unit = -1;
}

// Starts the sums over replicas of the own rows of a unit, which are complete.
void ParameterStore::start_replica_sums(int unit) {
  if (mesh_.replicas().size() == 1 || options_.reduce != DType::f32) return;
  const device::Timer timer(ctx_, device::Work::communication, "start all-reduce", 0);
  std::vector<std::span<float>> terms;
  for (const SlotState& s : slots_[static_cast<std::size_t>(unit)]) {
    if (!s.trainable || s.own_rows == 0) continue;
    terms.emplace_back(s.gradient_shard.as<float>(), static_cast<std::size_t>(s.gradient_shard.size()));
    mesh_.traffic().add_all_reduce(comm::Along::dp_replicate, mesh_.replicas(), DType::f32, s.gradient_shard.size());
  }
  if (!terms.empty()) replica_sums_.push_back(mesh_.replicas().start_sums(terms));
}

void ParameterStore::finish_replica_sums(const Context& ctx) {
  if (mesh_.replicas().size() == 1 || ctx.dry || micro_ + 1 < micro_count_) return;
  double bytes = 0;
  for (const auto& unit : slots_)
    for (const SlotState& s : unit)
      if (s.trainable) bytes += static_cast<double>(s.gradient_shard.size() * (options_.reduce == DType::f32 ? 4 : 2));
  const device::Timer timer(ctx, device::Work::communication, "all-reduce", bytes);
  for (comm::Request& sum : replica_sums_) sum.wait();
  replica_sums_.clear();
  if (options_.reduce == DType::f32) return;
  for (const auto& unit : slots_)
    for (const SlotState& s : unit)
      if (s.trainable && s.own_rows > 0) sum_replicas_in_bf16(ctx, s.gradient_shard);
}

// Each replica adds a part of the gradient in f32; terms and sums travel in bf16.
void ParameterStore::sum_replicas_in_bf16(const Context& ctx, const View& gradient) {
  comm::Communicator& group = mesh_.replicas();
  const View flat = gradient.reshaped({gradient.size()}), sent = replica_sent_.rows(0, gradient.size());
  std::vector<std::int64_t> parts, bytes;
  for (int rank = 0; rank < group.size(); ++rank) {
    parts.push_back(rows_of(gradient.size(), rank, group.size()).count());
    bytes.push_back(2 * parts.back());
  }
  const RowRange own = rows_of(gradient.size(), group.rank(), group.size());
  const View terms = replica_terms_.rows(0, group.size() * own.count()).reshaped({group.size(), own.count()});
  ops::copy(ctx, flat, sent);
  mesh_.traffic().add_all_reduce(comm::Along::dp_replicate, group, sent.dtype, sent.size());
  start_exchange(group, sent, terms, parts).wait();
  const View sum = flat.rows(own.begin, own.end), rounded = sent.rows(own.begin, own.end);
  if (own.count() > 0) {
    ops::sum_terms(ctx, terms, sum);
    ops::copy(ctx, sum, rounded);
  }
  group.start_all_gather(bytes_at(rounded), static_cast<std::byte*>(sent.data), bytes).wait();
  ops::copy(ctx, sent, flat);
}

void ParameterStore::finish_gradients(const Context& ctx) {
  for (Reducing& r : reducing_) finish(ctx, r);
  finish_replica_sums(ctx);
  if (micro_ + 1 == micro_count_) {
    sum_copies(ctx);
    sum_tied(ctx);
  }
  if (trace_ == nullptr || ctx.dry) return;
  for (const ParameterShard& o : shards_) {
    if (o.rows.count() > 0 && !o.gradient.empty())
      trace_->summed.push_back({o.number, digest_of_values(ctx, o.gradient)});
  }
}

void ParameterStore::add_gradient_squares(const Context& ctx, double* total) {
  const std::span<double> squares(squares_.as<double>(), table_.size());
  ops::zero(ctx, squares_);
  for (const ParameterShard& o : shards_)
    if (const model::Parameter& p = table_[static_cast<std::size_t>(o.number)];
        !o.gradient.empty() && o.rows.count() > 0 && first_of_copies(p) && owns(p))
      optim::add_squares(ctx, o.gradient, ctx.dry ? nullptr : &squares[static_cast<std::size_t>(o.number)]);
  {
    const device::Timer timer(ctx, device::Work::communication, "all-reduce", tensor::bytes_of(squares_));
    if (!ctx.dry) {
      mesh_.traffic().add_all_reduce(comm::Along::several, mesh_.model(), squares_.dtype, squares_.size());
      mesh_.model().sum_here(squares);
    }
  }
  optim::add_in_order(ctx, squares, total);
}

std::optional<std::string> ParameterStore::differing_replica(const Context& ctx) const {
  const bool tied_apart = tied_ && stage_.stages > 1;
  if (mesh_.replicas().size() == 1 && mesh_.tensor().size() == 1 && !tied_apart) return std::nullopt;
  std::string digests;
  for (const ParameterShard& o : shards_) {
    std::string each;
    for (const View& values : {o.master, o.m, o.v})
      if (!values.empty()) each += digest_of_values(ctx, values).hex();
    digests += digest_of(std::as_bytes(std::span(each))).hex();
  }
  const std::size_t each = digests.size() / shards_.size();
  const auto differing = [&](comm::Communicator& group, const std::string& what,
                             const auto& first_of) -> std::optional<std::string> {
    const std::vector<std::string> all = group.all_gather(digests);
    for (std::size_t number = 0; number < shards_.size(); ++number)
      for (std::size_t rank = 1; rank < all.size(); ++rank) {
        const std::size_t first = first_of(rank, table_[number]);
        if (all[rank].compare(number * each, each, all[first], number * each, each) != 0)
          return what + std::to_string(rank) + " of " + table_[number].name + " is not the same as " + what +
                 std::to_string(first);
      }
    return std::nullopt;
  };
  const auto found =
      differing(mesh_.replicas(), "replica ", [](std::size_t, const model::Parameter&) { return std::size_t{0}; });
  const auto copy = differing(mesh_.tensor(), "tp rank ", [](std::size_t rank, const model::Parameter& p) {
    const auto copies = static_cast<std::size_t>(p.copies);
    return p.expert >= 0 ? rank : rank / copies * copies;
  });
  if (found || copy || !tied_apart) return found ? found : copy;
  const auto last = static_cast<std::size_t>(stage_.stages - 1);
  return differing(mesh_.stages(), "stage ", [last](std::size_t stage, const model::Parameter& p) {
    return stage == last && p.role == model::ParameterRole::embedding ? 0 : stage;
  });
}

void ParameterStore::zero_gradients(const Context& ctx) {
  for (const auto& unit : slots_)
    for (const SlotState& s : unit)
      if (s.trainable && s.own_rows > 0) ops::zero(ctx, s.gradient_shard);
}

}  // namespace fp8::shard
