// Sums are an all-to-all and additions on each rank: a reduce-scatter would round at each hop.
#include "fp8/shard/tensor_group.h"

#include <memory>
#include <span>

#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"
#include "pending.h"
#include "view_bytes.h"

namespace fp8::shard {
namespace {

using tensor::View;

std::int64_t row_bytes(const View& v) { return static_cast<std::int64_t>(dtype::size_of(v.dtype)) * v.shape[1]; }

std::span<float> floats_of(const View& v) { return {v.as<float>(), static_cast<std::size_t>(v.size())}; }

}  // namespace

std::int64_t TensorGroup::first_row(std::int64_t rows, int rank) const {
  return rank < ranks() ? rows_of(rows, rank, ranks()).begin : rows;
}

void TensorGroup::gather(const device::Context& ctx, const View& own, const View& all) {
  const device::Timer timer(
      ctx, comm::exchange_span("gather rows", device::ExchangeKind::all_gather, *group_, tensor::bytes_of(all)));
  if (ctx.dry) return;
  traffic_->add_gather(comm::Along::tp, *group_, own.dtype, static_cast<std::int64_t>(own.bytes()));
  std::vector<std::int64_t> bytes;
  for (int r = 0; r < ranks(); ++r) bytes.push_back(rows_of(all.shape[0], r, ranks()).count() * row_bytes(all));
  group_->gather({bytes_at(own), memory_at(all), bytes});
}

std::function<void()> TensorGroup::start_shift(const device::Context& ctx, const View& own, int places,
                                               const View& arriving) {
  const auto bytes = [](const View& v) { return static_cast<std::int64_t>(v.bytes()); };
  const auto start = [&] {
    const comm::SentMessage sent{bytes_at(own), bytes(own), (rank() + places) % ranks()};
    const comm::ReceivedMessage received{memory_at(arriving), bytes(arriving), (rank() - places + ranks()) % ranks()};
    traffic_->add(comm::Along::tp, own.dtype, bytes(own));
    return group_->start_messages({&sent, 1}, {&received, 1});
  };
  const auto exchange = comm::exchange_of(device::ExchangeKind::message, *group_, tensor::bytes_of(own));
  const auto pending = std::make_shared<Pending>(start_pending(ctx, "start rows", exchange, start));
  return [&ctx, pending] { wait(ctx, "gather rows", *pending); };
}

void TensorGroup::sum(const device::Context& ctx, const View& partial, const View& bias, const View& own) {
  const device::Scope scope(*ctx.arena);
  const std::int64_t n = own.shape[0], columns = own.shape[1];
  const View terms = tensor::allocate(ctx, partial.dtype, {ranks(), n, columns}, "scratch");
  {
    std::vector<std::int64_t> sent;
    for (int r = 0; r < ranks(); ++r)
      sent.push_back(rows_of(partial.shape[0], r, ranks()).count() * row_bytes(partial));
    const std::vector<std::int64_t> received(sent.size(), n * row_bytes(partial));
    const std::int64_t to_others = static_cast<std::int64_t>(partial.bytes()) - received.front();
    const device::Timer timer(ctx, comm::exchange_span("all-to-all", device::ExchangeKind::all_to_all, *group_,
                                                       static_cast<double>(to_others)));
    if (!ctx.dry) {
      traffic_->add(comm::Along::tp, partial.dtype, to_others);
      group_->start_all_to_all(bytes_at(partial), sent, memory_at(terms), received).wait();
    }
  }
  if (n > 0) ops::sum_partials(ctx, terms, bias, own);
}

void TensorGroup::sum_copies(const device::Context& ctx, const View& values) {
  if (copies_ == 1) return;
  const device::Scope scope(*ctx.arena);
  const std::int64_t rows = values.shape[0], columns = values.shape[1];
  const View sent = tensor::allocate(ctx, values.dtype, {rows, columns}, "scratch");
  const View terms = tensor::allocate(ctx, values.dtype, {copies_, rows, columns}, "scratch");
  ops::copy(ctx, values, sent);
  const int first = rank() / copies_ * copies_;
  const auto bytes = static_cast<std::int64_t>(sent.bytes());
  {
    const device::Timer timer(ctx, comm::exchange_span("all-to-all", device::ExchangeKind::all_to_all, *group_,
                                                       rank() != first ? static_cast<double>(bytes) : 0));
    std::vector<std::int64_t> to(static_cast<std::size_t>(ranks()), 0), from = to;
    to[static_cast<std::size_t>(first)] = bytes;
    for (int r = first; r < first + copies_ && rank() == first; ++r) from[static_cast<std::size_t>(r)] = bytes;
    if (!ctx.dry) {
      if (rank() != first) traffic_->add(comm::Along::tp, sent.dtype, bytes);
      group_->start_all_to_all(bytes_at(sent), to, memory_at(terms), from).wait();
    }
  }
  if (rank() == first)
    ops::sum_partials(ctx, terms, {}, sent);
  else
    ops::zero(ctx, sent);
  ops::copy(ctx, sent, values);
}

void TensorGroup::all_reduce(const device::Context& ctx, const View& values, comm::Reduce op) const {
  const device::Timer timer(
      ctx, comm::exchange_span("all-reduce", device::ExchangeKind::all_reduce, *group_, tensor::bytes_of(values)));
  if (ctx.dry) return;
  traffic_->add_all_reduce(comm::Along::tp, *group_, values.dtype, values.size());
  group_->all_reduce(floats_of(values), op);
}

void TensorGroup::reduce(const device::Context& ctx, const View& amaxes) const {
  all_reduce(ctx, amaxes, comm::Reduce::amax);
}

}  // namespace fp8::shard
