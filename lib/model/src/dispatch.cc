// Rows are sent in the order of ranks, and within a rank in the order of experts and tokens; those that arrive are
// ordered by expert, then by the rank that sent them, which is the order of the tokens of all ranks.
#include "dispatch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fp8/device/profile.h"
#include "fp8/ops/route.h"

namespace fp8::model {
namespace {

using dtype::DType;
using tensor::allocate;

// Numbers of rows by rank and expert.
class Counts {
 public:
  Counts(const ExpertExchange& exchange, std::span<const std::int32_t> counts)
      : counts_(counts), experts_(exchange.first_expert(exchange.ranks())) {}
  std::int64_t of(int rank, std::int64_t expert) const {
    return counts_[static_cast<std::size_t>(rank * experts_ + expert)];
  }
  // Rows of all ranks.
  std::int64_t of(std::int64_t expert, int ranks) const {
    std::int64_t sum = 0;
    for (int r = 0; r < ranks; ++r) sum += of(r, expert);
    return sum;
  }

 private:
  std::span<const std::int32_t> counts_;
  std::int64_t experts_;
};

// The first experts of the passes of a rank, and one past the last of all.
std::vector<std::int64_t> pass_bounds(const ExpertExchange& exchange, const Counts& counts, int rank,
                                      std::int64_t room) {
  const std::int64_t last = exchange.first_expert(rank + 1);
  std::vector<std::int64_t> bounds{exchange.first_expert(rank)};
  std::int64_t rows = 0;
  for (std::int64_t e = bounds.front(); e < last; ++e) {
    const std::int64_t of_expert = counts.of(e, exchange.ranks());
    if (rows + of_expert > room && e > bounds.back()) {
      bounds.push_back(e);
      rows = 0;
    }
    rows += of_expert;
  }
  bounds.push_back(last);
  return bounds;
}

// Takes memory for indices, and copies them there.
class Indices {
 public:
  Indices(const Context& ctx, const View& memory) : ctx_(ctx), memory_(memory) {}
  View copy(const std::vector<std::int32_t>& values) {
    const View v = memory_.rows(used_, used_ + std::ssize(values));
    used_ += std::ssize(values);
    if (!values.empty())
      device::copy_bytes(ctx_, v.data, ctx_.device, values.data(), device::DeviceType::host, v.bytes());
    return v;
  }

 private:
  const Context& ctx_;
  View memory_;
  std::int64_t used_ = 0;
};

std::int64_t sum_of(std::span<const std::int64_t> values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

// Fills in what a pass sends. `bounds` has the bounds of all ranks.
void plan_sent(ExpertPass& pass, const ExpertExchange& exchange, const Counts& counts,
               const std::vector<std::vector<std::int64_t>>& bounds, std::size_t number, Indices& indices) {
  std::vector<std::int32_t> pack, unpack;
  std::int32_t row = 0;
  for (int r = 0; r < exchange.ranks(); ++r) {
    const std::vector<std::int64_t>& own = bounds[static_cast<std::size_t>(r)];
    const std::int64_t begin = own[number], end = own[number + 1];
    std::int64_t sent = 0;
    for (std::int64_t e = exchange.first_expert(r); e < exchange.first_expert(r + 1); ++e)
      for (std::int64_t i = 0; i < counts.of(exchange.rank(), e); ++i, ++row) {
        const bool travels = e >= begin && e < end;
        unpack.push_back(travels ? static_cast<std::int32_t>(pack.size()) : -1);
        if (travels) pack.push_back(row), ++sent;
      }
    pass.to.push_back(sent);
  }
  pass.pack = indices.copy(pack);
  pass.unpack = indices.copy(unpack);
}

// Fills in what arrives: from each rank the rows of the pass's experts.
void plan_received(ExpertPass& pass, const ExpertExchange& exchange, const Counts& counts, std::int64_t begin,
                   std::int64_t end, Indices& indices) {
  std::vector<std::int64_t> next;  // first row that is not taken yet, of each rank
  std::int64_t arrived = 0;
  for (int r = 0; r < exchange.ranks(); ++r) {
    next.push_back(arrived);
    std::int64_t rows = 0;
    for (std::int64_t e = begin; e < end; ++e) rows += counts.of(r, e);
    pass.from.push_back(rows);
    arrived += rows;
  }
  std::vector<std::int32_t> order, unorder(static_cast<std::size_t>(arrived));
  pass.first = {0};
  for (std::int64_t e = begin; e < end; ++e) {
    for (int r = 0; r < exchange.ranks(); ++r)
      for (std::int64_t i = 0; i < counts.of(r, e); ++i) {
        std::int64_t& at = next[static_cast<std::size_t>(r)];
        unorder[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(order.size());
        order.push_back(static_cast<std::int32_t>(at++));
      }
    pass.first.push_back(std::ssize(order));
  }
  pass.order = indices.copy(order);
  pass.unorder = indices.copy(unorder);
}

// One end of a travel: rows by rank, and where they are.
struct End {
  const View& indices;
  std::span<const std::int64_t> rows;
};

// Sends the rows of `from` with the indices of one end; row i of `to` becomes the row of those that arrive with index i
// of the other end, unless that is -1.
void travel(const Context& ctx, ExpertExchange& exchange, const View& from, const End& sender, const End& receiver,
            const View& to) {
  const device::Scope scope(*ctx.arena);
  const auto rows_like = [&](std::int64_t rows) { return allocate(ctx, from.dtype, {rows, from.shape[1]}, "scratch"); };
  const View sent = rows_like(sum_of(sender.rows)), arrived = rows_like(sum_of(receiver.rows));
  if (device::plans_memory(ctx)) return;  // no indices
  ops::gather_rows(ctx, from, sender.indices, sent);
  exchange.exchange(ctx, sent, sender.rows, arrived, receiver.rows);
  ops::gather_rows(ctx, arrived, receiver.indices, to.rows(0, receiver.indices.size()));
}

}  // namespace

std::int64_t expert_room(const ExpertExchange& exchange, std::int64_t per_token, std::int64_t rows) {
  const std::int64_t ranks = exchange.ranks(), most = ranks * per_token * rows;
  const double wanted = std::ceil(exchange.room() * static_cast<double>(per_token * rows));
  return wanted >= static_cast<double>(most) ? most : std::max(ranks * rows, static_cast<std::int64_t>(wanted));
}

std::int64_t expert_indices(const ExpertExchange& exchange, std::int64_t per_token, std::int64_t rows) {
  // Each pass stores the place of every row of this rank. Two passes one after the other have more rows than there is
  // room for, so there are at most twice the rows by the room, and one more.
  const std::int64_t all = exchange.ranks() * per_token * rows, room = expert_room(exchange, per_token, rows);
  const std::int64_t passes = 2 * all / std::max<std::int64_t>(1, room) + 1;
  return per_token * rows * (1 + passes) + 2 * all;
}

std::vector<ExpertPass> plan_passes(const Context& ctx, const ExpertExchange& exchange,
                                    std::span<const std::int32_t> counts, std::int64_t room, const View& indices) {
  const Counts rows(exchange, counts);
  std::vector<std::vector<std::int64_t>> bounds;
  std::size_t passes = 0;
  for (int r = 0; r < exchange.ranks(); ++r) {
    bounds.push_back(pass_bounds(exchange, rows, r, room));
    passes = std::max(passes, bounds.back().size() - 1);
  }
  for (std::vector<std::int64_t>& own : bounds) own.resize(passes + 1, own.back());  // passes without experts
  Indices memory(ctx, indices);
  const std::vector<std::int64_t>& own = bounds[static_cast<std::size_t>(exchange.rank())];
  std::vector<ExpertPass> all(passes);
  for (std::size_t number = 0; number < passes; ++number) {
    ExpertPass& pass = all[number];
    const std::int64_t begin = own[number], end = own[number + 1];
    pass.begin = begin - own.front();
    pass.end = end - own.front();
    plan_sent(pass, exchange, rows, bounds, number, memory);
    plan_received(pass, exchange, rows, begin, end, memory);
  }
  return all;
}

std::vector<std::int32_t> balanced_counts(const ExpertExchange* exchange, std::int64_t experts, std::int64_t rows,
                                          double imbalance) {
  const std::int64_t ranks = exchange != nullptr ? exchange->ranks() : 1,
                     begin = exchange != nullptr ? exchange->first_expert(exchange->rank()) : 0,
                     end = exchange != nullptr ? exchange->first_expert(exchange->rank() + 1) : experts;
  const std::int64_t own = end - begin, others = experts - own;
  const double mean = static_cast<double>(rows) * static_cast<double>(own) / static_cast<double>(experts);
  const std::int64_t here = std::min(rows, static_cast<std::int64_t>(std::llround(imbalance * mean)));
  std::vector<std::int32_t> counts;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    for (std::int64_t e = 0; e < experts; ++e) {
      // Number i of `count` equal parts of n rows; parts that get one more differ from rank to rank.
      const auto part = [&](std::int64_t n, std::int64_t count, std::int64_t i) {
        const bool more = (i + count - rank % count) % count < n % count;
        counts.push_back(static_cast<std::int32_t>(n / count + (more ? 1 : 0)));
      };
      if (imbalance == 1 || others == 0)
        part(rows, experts, e);
      else if (e >= begin && e < end)
        part(here, own, e - begin);
      else
        part(rows - here, others, e < begin ? e : e - own);
    }
  return counts;
}

std::vector<ExpertPass> plan_dry(const ExpertExchange& exchange, std::int64_t per_token, std::int64_t rows) {
  const auto ranks = static_cast<std::size_t>(exchange.ranks());
  ExpertPass pass;
  pass.end = exchange.first_expert(exchange.rank() + 1) - exchange.first_expert(exchange.rank());
  pass.first = {0};
  const std::int64_t of_one = exchange.ranks() * rows;  // the most that an expert has
  for (std::int64_t e = 1; e <= pass.end; ++e)
    pass.first.push_back(std::min(expert_room(exchange, per_token, rows), e * of_one));
  pass.to.assign(ranks, 0);
  pass.from.assign(ranks, 0);
  pass.to.front() = per_token * rows;
  pass.from.front() = pass.rows();
  return {pass};
}

void send_rows(const Context& ctx, ExpertExchange& exchange, const ExpertPass& pass, const View& local,
               const View& sorted) {
  travel(ctx, exchange, local, {pass.pack, pass.to}, {pass.order, pass.from}, sorted);
}

void return_rows(const Context& ctx, ExpertExchange& exchange, const ExpertPass& pass, const View& sorted,
                 const View& local) {
  travel(ctx, exchange, sorted, {pass.unorder, pass.from}, {pass.unpack, pass.to}, local);
}

}  // namespace fp8::model
