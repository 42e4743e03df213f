// Buffers of whole gradients, their sums over micro-batches, shards and replicas, their norm, and whole gradients from
// the blocks of all ranks.
#include "fp8/shard/reduce.h"

#include <utility>

#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"
#include "fp8/optim/adamw.h"
#include "groups.h"
#include "model_sums.h"
#include "pending.h"
#include "view_bytes.h"

namespace fp8::shard {

using tensor::allocate;

namespace {

// Starts sending each rank its rows of the values `from`, in the order of ranks; each rank's terms of the own rows
// arrive in `terms`.
comm::Request start_exchange(comm::Communicator& group, const View& from, const View& terms, std::int64_t rows) {
  const std::vector<std::int64_t> sent = blocks_of(rows, static_cast<std::int64_t>(from.bytes()) / rows, group.size());
  const std::vector<std::int64_t> received(sent.size(), sent[static_cast<std::size_t>(group.rank())]);
  return group.start_all_to_all(bytes_at(from), sent, memory_at(terms), received);
}

}  // namespace

GradientReducer::GradientReducer(const Context& ctx, const comm::Mesh& mesh, const Layout& layout, const OwnRows& own)
    : ctx_(ctx),
      mesh_(mesh),
      layout_(layout),
      own_(own),
      buffers_(number_of_buffers(layout)),
      copies_(ctx, mesh, layout, own) {
  if (!layout.options().training) return;
  squares_ = allocate(ctx, DType::f64, {std::ssize(layout.table())}, "scratch");
  for (int unit = 0; unit < layout.unit_count(); ++unit)
    for (std::size_t i = 0; i < model::kSlots; ++i)
      if (layout.unit(unit)[i].trainable) allocate_buffer(ctx, unit, i);
  allocate_replica_sums(ctx);
}

// With one rank a buffer is needed for micro-batches that are added to the own rows.
void GradientReducer::allocate_buffer(const Context& ctx, int unit, std::size_t slot) {
  const SlotLayout& s = layout_.unit(unit)[slot];
  Buffer& b = buffer(unit);
  if (!b.whole[slot].empty() || (s.ranks == 1 && (keeps_whole() || !layout_.options().several_micro_batches))) return;
  const std::int64_t rows = largest(layout_, slot, [](const SlotLayout&other) { return other.extent.rows; }),
                     own_rows = largest(layout_, slot, [](const SlotLayout&other) { return other.own_rows; });
  b.whole[slot] = allocate_matrix(ctx, DType::f32, {rows, s.extent.cols}, s.vector, "gradient buffers");
  if (!travels_in_bf16() || s.ranks == 1) return;
  b.sent[slot] = allocate(ctx, DType::bf16, {rows * s.extent.cols}, "gradient buffers");
  b.terms[slot] = allocate(ctx, DType::bf16, {s.ranks * own_rows * s.extent.cols}, "gradient buffers");
}

void GradientReducer::allocate_replica_sums(const Context& ctx) {
  const std::int64_t replicas = mesh_.replicas().size();
  if (replicas == 1 || !travels_in_bf16()) return;
  std::int64_t most = 0;
  for (const SlotLayout& s : layout_.slots())
    if (s.trainable) most = std::max(most, s.own_rows * s.extent.cols);
  replica_sent_ = allocate(ctx, DType::bf16, {most}, "gradient buffers");
  replica_terms_ =
      allocate(ctx, DType::bf16, {replicas * rows_of(most, 0, static_cast<int>(replicas)).count()}, "gradient buffers");
}

GradientReducer::Buffer& GradientReducer::buffer(int unit) { return buffers_[buffer_of(layout_, unit, keeps_whole())]; }

// With one rank in the group the sums over micro-batches begin in the own rows.
View GradientReducer::whole(int unit, std::size_t slot) {
  const SlotLayout& s = layout_.unit(unit)[slot];
  if (!s.trainable) return {};
  if (s.ranks == 1 && (micro_ == 0 || keeps_whole())) return own_.of(s, &ParameterShard::gradient);
  return buffer(unit).whole[slot].rows(0, s.extent.rows);
}

void GradientReducer::begin_micro_batch(int index, int count) {
  micro_ = index;
  micro_count_ = count;
}

model::UnitGradients GradientReducer::gradient_buffers(int unit) {
  finish(ctx_, buffer(unit));
  model::UnitGradients out;
  out.accumulate = micro_ > 0 && keeps_whole();
  for (std::size_t i = 0; i < model::kSlots; ++i) out.slot[i] = whole(unit, i);
  return out;
}

void GradientReducer::trace_given(int unit) {
  for (std::size_t i = 0; i < model::kSlots; ++i) {
    const SlotLayout& s = layout_.unit(unit)[i];
    for (const int number : s.parameters)
      if (s.trainable)
        trace_->given.push_back({number, digest_of_values(ctx_, s.rows_of(whole(unit, i), layout_.parameter(number)))});
  }
}

void GradientReducer::gradients_done(int unit) {
  if (device::plans_memory(ctx_)) return;
  if (trace_ != nullptr) trace_given(unit);
  if (keeps_whole() && !last_micro_batch()) return;
  Buffer& b = buffer(unit);
  b.unit = unit;
  b.last = last_micro_batch();
  b.reduced.clear();
  for (std::size_t i = 0; i < model::kSlots; ++i) add_slot(b, i);
  start_reduce(b);
  if (b.pending.empty()) finish(ctx_, b);
}

// The sums of later micro-batches are added to the own rows; with one rank they do not travel.
void GradientReducer::add_slot(Buffer& b, std::size_t slot) {
  const SlotLayout& s = layout_.unit(b.unit)[slot];
  const bool added = micro_ > 0 && !keeps_whole();
  if (!s.trainable || (s.ranks == 1 && !added)) return;
  std::int64_t first = 0;  // element of `terms`
  for (const int number : s.parameters) {
    const model::Parameter& p = layout_.parameter(number);
    const ParameterShard& o = own_.of(number);
    const View whole = s.rows_of(b.whole[slot], p);
    Reduced one{&group_of(mesh_, s), whole, o.gradient, o.gradient, {}, {}};
    if (added) one.sum = whole.rows(o.rows.begin, o.rows.end);
    if (travels_in_bf16() && s.ranks > 1) {
      const std::int64_t own = o.gradient.size(), begin = (p.slot_row - s.first_row) * s.extent.cols;
      one.sent = b.sent[slot].rows(begin, begin + p.size());
      one.terms = b.terms[slot].rows(first, first + s.ranks * own).reshaped({s.ranks, own});
      first += s.ranks * own;
    }
    b.reduced.push_back(one);
  }
}

void GradientReducer::start_reduce(Buffer& b) {
  using device::ExchangeKind;
  constexpr const char* kName = "start reduce-scatter";
  ByGroup by_group;
  for (const Reduced& one : b.reduced) {
    if (one.group->size() == 1) continue;
    const View& sent = one.sent.empty() ? one.whole : one.sent;
    const std::int64_t bytes = (sent.size() - one.sum.size()) * static_cast<std::int64_t>(size_of(sent.dtype));
    mesh_.traffic().add(comm::Along::dp_shard, sent.dtype, bytes);
    if (one.sent.empty()) {
      add(by_group, *one.group, {one.sum, one.whole});
      continue;
    }
    ops::copy(ctx_, one.whole, one.sent);
    b.pending.push_back(
        start_pending(ctx_, kName, comm::exchange_of(ExchangeKind::all_to_all, *one.group, static_cast<double>(bytes)),
                      [&] { return start_exchange(*one.group, one.sent, one.terms, one.whole.shape[0]); }));
  }
  for (const auto& [group, tensors] : by_group)
    b.pending.push_back(start_pending(ctx_, kName,
                                      comm::exchange_of(ExchangeKind::reduce_scatter, *group, bytes_of_whole(tensors)),
                                      [&] { return start_reduce_scatters(*group, tensors); }));
}

void GradientReducer::finish(const Context& ctx, Buffer& b) {
  if (b.unit < 0) return;
  for (Pending& pending : b.pending) wait(ctx, "reduce-scatter", pending);
  b.pending.clear();
  for (const Reduced& one : b.reduced) {
    if (one.own.size() == 0) continue;
    if (!one.terms.empty()) ops::sum_terms(ctx, one.terms, one.sum);
    if (one.sum.data != one.own.data) ops::add(ctx, one.own, one.sum, one.own);
  }
  if (b.last) start_replica_sums(b.unit);
  b.unit = -1;
}

// Starts the sums over replicas of the own rows of a unit, which are complete.
void GradientReducer::start_replica_sums(int unit) {
  if (mesh_.replicas().size() == 1 || travels_in_bf16()) return;
  std::vector<std::span<float>> terms;
  double bytes = 0;
  for (const SlotLayout& s : layout_.unit(unit)) {
    if (!s.trainable || s.own_rows == 0) continue;
    const View own = own_.of(s, &ParameterShard::gradient);
    terms.emplace_back(own.as<float>(), static_cast<std::size_t>(own.size()));
    bytes += tensor::bytes_of(own);
    mesh_.traffic().add_all_reduce(comm::Along::dp_replicate, mesh_.replicas(), DType::f32, own.size());
  }
  if (terms.empty()) return;
  replica_sums_.push_back(start_pending(ctx_, "start all-reduce",
                                        comm::exchange_of(device::ExchangeKind::all_reduce, mesh_.replicas(), bytes),
                                        [&] { return mesh_.replicas().start_all_reduces(terms, comm::Reduce::sum); }));
}

void GradientReducer::finish_replica_sums(const Context& ctx) {
  if (mesh_.replicas().size() == 1) return;
  for (Pending& sum : replica_sums_) wait(ctx, "all-reduce", sum);
  replica_sums_.clear();
  if (!travels_in_bf16()) return;
  for (const SlotLayout& s : layout_.slots())
    if (s.trainable && s.own_rows > 0) sum_replicas_in_bf16(ctx, own_.of(s, &ParameterShard::gradient));
}

// Each replica adds a part of the gradient in f32; terms and sums travel in bf16.
void GradientReducer::sum_replicas_in_bf16(const Context& ctx, const View& gradient) const {
  comm::Communicator& group = mesh_.replicas();
  const View flat = gradient.reshaped({gradient.size()}), sent = replica_sent_.rows(0, gradient.size());
  const RowRange own = rows_of(gradient.size(), group.rank(), group.size());
  const View terms = replica_terms_.rows(0, group.size() * own.count()).reshaped({group.size(), own.count()});
  ops::copy(ctx, flat, sent);
  mesh_.traffic().add_all_reduce(comm::Along::dp_replicate, group, sent.dtype, sent.size());
  using device::ExchangeKind;
  {
    const std::int64_t others = (sent.size() - own.count()) * static_cast<std::int64_t>(size_of(sent.dtype));
    const device::Timer timer(
        ctx, comm::exchange_span("all-to-all", ExchangeKind::all_to_all, group, static_cast<double>(others)));
    if (!ctx.dry) start_exchange(group, sent, terms, gradient.size()).wait();
  }
  const View sum = flat.rows(own.begin, own.end), rounded = sent.rows(own.begin, own.end);
  if (own.count() > 0) {
    ops::sum_terms(ctx, terms, sum);
    ops::copy(ctx, sum, rounded);
  }
  {
    const device::Timer timer(
        ctx, comm::exchange_span("all-gather", ExchangeKind::all_gather, group, tensor::bytes_of(sent)));
    if (!ctx.dry) group.gather({bytes_at(rounded), memory_at(sent), blocks_of(gradient.size(), 2, group.size())});
  }
  ops::copy(ctx, sent, flat);
}

void GradientReducer::finish(const Context& ctx) {
  for (Buffer& b : buffers_) finish(ctx, b);
  if (last_micro_batch()) {
    finish_replica_sums(ctx);
    copies_.add(ctx);
  }
  if (trace_ == nullptr) return;
  for (const ParameterShard& o : own_.parameters) {
    if (o.rows.count() > 0 && !o.gradient.empty())
      trace_->summed.push_back({o.number, digest_of_values(ctx, o.gradient)});
  }
}

void GradientReducer::add_squares(const Context& ctx, double* total) const {
  const std::span<double> squares(squares_.as<double>(), layout_.table().size());
  ops::zero(ctx, squares_);
  for (const ParameterShard& o : own_.parameters)
    if (const model::Parameter& p = layout_.parameter(o.number);
        !o.gradient.empty() && o.rows.count() > 0 && layout_.first_of_copies(p) && layout_.owns(p))
      optim::add_squares(ctx, o.gradient, ctx.dry ? nullptr : &squares[static_cast<std::size_t>(o.number)]);
  sum_over_model(ctx, mesh_, squares_);
  optim::add_in_order(ctx, squares, total);
}

// The blocks of all ranks of mesh().model() arrive one after the other. Without tensor parallelism that is their order
// in the whole; otherwise they are copied to their places.
void GradientReducer::visit(const Context& ctx,
                            const std::function<void(const model::Parameter&, const View&)>& visit) const {
  comm::Communicator& group = mesh_.model();
  for (const ParameterShard& o : own_.parameters) {
    const model::Parameter& p = layout_.parameter(o.number);
    if (!p.trainable) continue;
    if (group.size() == 1) {
      if (!ctx.dry && comm::is_writer(mesh_.all())) visit(p, o.gradient);
      continue;
    }
    const device::Scope scope(*ctx.arena);
    const std::vector<std::int64_t>& shape = p.whole_shape();
    const model::Extent extent{shape.front(), shape.size() > 1 ? shape.back() : 1};
    const View whole = allocate_matrix(ctx, DType::f32, extent, shape.size() == 1, "gathered gradient");
    const bool in_order = mesh_.tensor().size() == 1;
    const View pieces = in_order ? whole : tensor::allocate(ctx, DType::f32, {whole.size()}, "gathered gradient");
    if (ctx.dry) continue;
    std::vector<Block> blocks;
    std::vector<std::int64_t> bytes;
    for (int rank = 0; rank < group.size(); ++rank) {
      blocks.push_back(layout_.block_on(p, rank));
      bytes.push_back(4 * blocks.back().size());
    }
    {
      const device::Timer timer(ctx, comm::exchange_span("gather gradient", device::ExchangeKind::all_gather, group,
                                                         tensor::bytes_of(pieces)));
      group.gather({bytes_at(o.gradient), memory_at(pieces), bytes});
    }
    if (!comm::is_writer(mesh_.all())) continue;
    std::int64_t at = 0;
    for (const Block& block : blocks) {
      const auto& [rows, columns] = block;
      const std::int64_t n = block.size();
      if (!in_order && n > 0)
        ops::copy(
            ctx, pieces.rows(at, at + n).reshaped({rows.count(), columns.count()}),
            whole.reshaped({extent.rows, extent.cols}).rows(rows.begin, rows.end).columns(columns.begin, columns.end));
      at += n;
    }
    visit(p, whole);
  }
}

void GradientReducer::zero(const Context& ctx) const {
  for (const ParameterShard& o : own_.parameters)
    if (o.rows.count() > 0 && !o.gradient.empty()) ops::zero(ctx, o.gradient);
}

}  // namespace fp8::shard
