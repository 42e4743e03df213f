// Rows travel by all-to-all, and the numbers of rows by all-gather.
#include "fp8/shard/expert_group.h"

#include "fp8/device/profile.h"
#include "view_bytes.h"

namespace fp8::shard {

using dtype::DType;

std::int64_t ExpertGroup::first_expert(int rank) const {
  return rank < ranks() ? rows_of(experts_, rank, ranks()).begin : experts_;
}

void ExpertGroup::gather_counts(const device::Context& ctx, const View& counts, const View& all) {
  const std::vector<std::int64_t> bytes(static_cast<std::size_t>(ranks()), static_cast<std::int64_t>(counts.bytes()));
  const device::Timer timer(
      ctx, comm::exchange_span("all-gather", device::ExchangeKind::all_gather, *group_, tensor::bytes_of(all)));
  if (ctx.dry) return;
  traffic_->add_gather(comm::Along::ep, *group_, counts.dtype, bytes.front());
  group_->gather({bytes_at(counts), memory_at(all), bytes});
}

void ExpertGroup::exchange(const device::Context& ctx, const View& from, std::span<const std::int64_t> rows_to,
                           const View& to, std::span<const std::int64_t> rows_from) {
  const auto row = static_cast<std::int64_t>(dtype::size_of(from.dtype)) * from.shape[1];
  const auto bytes_of = [row](std::span<const std::int64_t> rows) {
    std::vector<std::int64_t> bytes;
    for (const std::int64_t n : rows) bytes.push_back(n * row);
    return bytes;
  };
  const std::int64_t own = rows_to[static_cast<std::size_t>(rank())] * row;
  const std::int64_t to_others = static_cast<std::int64_t>(from.bytes()) - own;
  const device::Timer timer(ctx, comm::exchange_span("all-to-all", device::ExchangeKind::all_to_all, *group_,
                                                     static_cast<double>(to_others)));
  if (ctx.dry) return;
  traffic_->add(comm::Along::ep, from.dtype, to_others);
  group_->start_all_to_all(bytes_at(from), bytes_of(rows_to), memory_at(to), bytes_of(rows_from)).wait();
}

}  // namespace fp8::shard
