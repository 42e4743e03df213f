// Sums of the gradients of parameters that several ranks of tensor parallelism, or the first and the last stage, have;
// and whole gradients from the blocks of all ranks.
#include <algorithm>
#include <array>
#include <utility>

#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"
#include "fp8/shard/store.h"
#include "view_bytes.h"

namespace fp8::shard {

using tensor::allocate;

void ParameterStore::allocate_copy_sums(const Context& ctx) {
  for (const ParameterShard& o : shards_) {
    const model::Parameter& p = table_[static_cast<std::size_t>(o.number)];
    if (p.copies == 1 || !p.trainable || o.rows.count() == 0) continue;
    auto found = std::ranges::find(copy_sums_, p.copies, &CopySum::copies);
    if (found == copy_sums_.end()) found = copy_sums_.insert(found, {p.copies, {}, {}, {}});
    found->numbers.push_back(o.number);
  }
  for (CopySum& sum : copy_sums_) {
    std::int64_t n = 0;
    for (const int number : sum.numbers) n += shards_[static_cast<std::size_t>(number)].gradient.size();
    sum.sent = allocate(ctx, DType::f32, {1, n}, "gradient buffers");
    sum.terms = allocate(ctx, DType::f32, {sum.copies, 1, n}, "gradient buffers");
  }
}

// Adds the gradients of parameters of which each rank of tensor parallelism has seen a part of the rows or of the
// outputs: with one exchange for all that the same ranks have, in the order of these ranks, so that all get the same
// bits.
void ParameterStore::sum_copies(const Context& ctx) {
  if (ctx.dry) return;
  comm::Communicator& group = mesh_.tensor();
  for (const CopySum& sum : copy_sums_) {
    const auto each = [&](const auto& body) {
      std::int64_t at = 0;
      for (const int number : sum.numbers) {
        const View& gradient = shards_[static_cast<std::size_t>(number)].gradient;
        const View flat = gradient.reshaped({1, gradient.size()});
        body(flat, sum.sent.columns(at, at + gradient.size()));
        at += gradient.size();
      }
    };
    each([&](const View& gradient, const View& place) { ops::copy(ctx, gradient, place); });
    const int first = group.rank() / sum.copies * sum.copies;
    const auto bytes = static_cast<std::int64_t>(sum.sent.bytes());
    {
      const device::Timer timer(ctx, device::Work::communication, "all-to-all", tensor::bytes_of(sum.terms));
      // Each of these ranks gets the same values.
      std::vector<comm::SentMessage> sent;
      std::vector<comm::ReceivedMessage> received;
      for (int r = first; r < first + sum.copies; ++r) {
        std::byte* const to = static_cast<std::byte*>(sum.terms.rows(r - first, r - first + 1).data);
        if (r == group.rank()) {
          device::copy_bytes(ctx, to, ctx.device, sum.sent.data, ctx.device, sum.sent.bytes());
          continue;
        }
        sent.push_back({bytes_at(sum.sent), bytes, r});
        received.push_back({to, bytes, r});
      }
      mesh_.traffic().add(comm::Along::tp, sum.sent.dtype, bytes * (sum.copies - 1));
      group.start_messages(sent, received).wait();
    }
    ops::sum_partials(ctx, sum.terms, {}, sum.sent);
    each([&](const View& gradient, const View& place) { ops::copy(ctx, place, gradient); });
  }
}

// A tied embedding of which another stage has a copy, if this rank has one with a gradient and own rows.
const ParameterShard* ParameterStore::tied_embedding() const {
  if (!tied_ || stage_.stages == 1 || !has_unit(0)) return nullptr;
  const auto found = std::ranges::find_if(shards_, [this](const ParameterShard& o) {
    return table_[static_cast<std::size_t>(o.number)].role == model::ParameterRole::embedding;
  });
  return found != shards_.end() && !found->gradient.empty() && found->gradient.size() > 0 ? &*found : nullptr;
}

// The first stage has the gradient of a tied embedding as an embedding, the last one that as a head. Both get the same
// sum.
void ParameterStore::sum_tied(const Context& ctx) {
  const ParameterShard* const tied = tied_embedding();
  if (tied == nullptr || ctx.dry) return;
  const View own = tied->gradient.reshaped({tied->gradient.size()});
  {
    const device::Timer timer(ctx, device::Work::communication, "sum of tied", tensor::bytes_of(own));
    const auto bytes = static_cast<std::int64_t>(own.bytes());
    const int other = stage_.begins() ? stage_.stages - 1 : 0;
    const comm::SentMessage sent{bytes_at(own), bytes, other};
    const comm::ReceivedMessage received{static_cast<std::byte*>(tied_terms_.data), bytes, other};
    mesh_.stages().start_messages(std::span(&sent, 1), std::span(&received, 1)).wait();
    mesh_.traffic().add(comm::Along::pp, own.dtype, bytes);
  }
  ops::add(ctx, own, tied_terms_, own);
}

// The rows and columns of the whole parameter that a rank of mesh().model() has; no rows if another rank has the same.
std::pair<RowRange, RowRange> ParameterStore::block_on(const model::Parameter& p, int rank) const {
  const std::vector<std::int64_t>& whole = p.whole_shape();
  std::array<RowRange, 2> block{RowRange{0, whole.front()}, {0, whole.size() > 1 ? whole.back() : 1}};
  if (!model::stage_of(options_.stages, rank / mesh_.copy().size()).has(p.unit)) return {RowRange{}, block[1]};
  rank %= mesh_.copy().size();
  if (p.expert >= 0) {
    const int ranks = mesh_.experts().size();
    const RowRange experts = experts_of(rank % ranks);
    const bool has = p.expert >= experts.begin && p.expert < experts.end;
    return {has ? rows_of(whole.front(), rank / ranks, mesh_.expert_shards().size()) : RowRange{}, block[1]};
  }
  const int t = rank % mesh_.tensor().size(), shard = rank / mesh_.tensor().size();
  if (t % p.copies != 0) return {RowRange{}, block[1]};
  if (!p.bounds.empty()) {
    const auto at = static_cast<std::size_t>(t / p.copies);
    block[static_cast<std::size_t>(p.tensor_parallel_axis)] = {p.bounds[at], p.bounds[at + 1]};
  }
  const RowRange own = rows_of(block[0].count(), shard, mesh_.shards().size());
  return {{block[0].begin + own.begin, block[0].begin + own.end}, block[1]};
}

// Copies the blocks of all ranks, one after the other, to their places.
void ParameterStore::place_gradient(const Context& ctx, const model::Parameter& p, const View& pieces,
                                    const View& whole) const {
  const View matrix = whole.rank == 1 ? whole.reshaped({whole.size(), 1}) : whole;
  std::int64_t at = 0;
  for (int rank = 0; rank < mesh_.model().size(); ++rank) {
    const auto [rows, columns] = block_on(p, rank);
    const std::int64_t n = rows.count() * columns.count();
    if (n == 0) continue;
    ops::copy(ctx, pieces.rows(at, at + n).reshaped({rows.count(), columns.count()}),
              matrix.rows(rows.begin, rows.end).columns(columns.begin, columns.end));
    at += n;
  }
}

void ParameterStore::visit_gradients(const Context& ctx,
                                     const std::function<void(const model::Parameter&, const View&)>& visit) const {
  comm::Communicator& group = mesh_.model();
  for (const ParameterShard& o : shards_) {
    const model::Parameter& p = table_[static_cast<std::size_t>(o.number)];
    if (!p.trainable) continue;
    if (group.size() == 1) {
      if (!ctx.dry && comm::is_writer(mesh_.all())) visit(p, o.gradient);
      continue;
    }
    const device::Scope scope(*ctx.arena);
    const std::vector<std::int64_t>& shape = p.whole_shape();
    const bool vector = shape.size() == 1;
    const View whole = matrix(ctx, DType::f32, shape.front(), vector ? 1 : shape.back(), vector, "gathered gradient");
    const bool in_order = mesh_.tensor().size() == 1;  // blocks of rows, rank after rank
    const View pieces = in_order ? whole : allocate(ctx, DType::f32, {whole.size()}, "gathered gradient");
    if (ctx.dry) continue;
    {
      const device::Timer timer(ctx, device::Work::communication, "gather gradient", tensor::bytes_of(pieces));
      std::vector<std::int64_t> bytes;
      for (int rank = 0; rank < group.size(); ++rank) {
        const auto [rows, columns] = block_on(p, rank);
        bytes.push_back(4 * rows.count() * columns.count());
      }
      group.start_all_gather(bytes_at(o.gradient), static_cast<std::byte*>(pieces.data), bytes).wait();
    }
    if (!comm::is_writer(mesh_.all())) continue;
    if (!in_order) place_gradient(ctx, p, pieces, whole);
    visit(p, whole);
  }
}

}  // namespace fp8::shard
