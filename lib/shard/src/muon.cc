// Which rank orthogonalizes which matrix, and the exchanges of its rows.
#include "fp8/shard/muon.h"

#include <algorithm>
#include <numeric>

#include "element.h"
#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"
#include "fp8/optim/muon.h"
#include "view_bytes.h"

namespace fp8::shard {

using tensor::allocate;

namespace {

constexpr const char* kMemory = "orthogonalization";

// Whether blocks that lie one after the other are the rows of the matrix in order.
bool in_order(const std::vector<Block>& blocks, std::int64_t columns) {
  std::int64_t row = 0;
  for (const Block& b : blocks) {
    if (b.size() == 0) continue;
    if (b.rows.begin != row || b.columns.count() != columns) return false;
    row = b.rows.end;
  }
  return true;
}

// body(block of the matrix, the same block in `pieces`, where the blocks lie one after the other).
template <class Body>
void each_block(const View& whole, const View& pieces, const std::vector<Block>& blocks, Body&& body) {
  std::int64_t at = 0;
  for (const Block& b : blocks) {
    const std::int64_t n = b.size();
    if (n > 0)
      body(whole.rows(b.rows.begin, b.rows.end).columns(b.columns.begin, b.columns.end),
           pieces.rows(at, at + n).reshaped({b.rows.count(), b.columns.count()}));
    at += n;
  }
}

}  // namespace

MuonDirections::MuonDirections(const comm::Mesh& mesh, const Layout& layout, const OwnRows& own)
    : mesh_(mesh), layout_(layout), own_(own), dealt_(static_cast<std::size_t>(mesh.copy().size())) {
  if (!layout.options().training || !layout.options().updates) return;
  std::vector<std::pair<double, int>> matrices;
  for (const ParameterShard& o : own.parameters) {
    const model::Parameter& p = layout.parameter(o.number);
    if (p.muon && layout.has_unit(p.unit))
      matrices.emplace_back(optim::orthogonalization_flops(p.whole_shape().front(), p.whole_shape().back()), o.number);
  }
  std::ranges::stable_sort(matrices, std::greater(), &std::pair<double, int>::first);
  std::vector<double> load(dealt_.size());
  for (const auto& [flops, number] : matrices) {
    std::size_t least = dealt_.size();
    for (std::size_t r = 0; r < dealt_.size(); ++r)
      if (block(number, static_cast<int>(r), Copies::all).size() > 0 &&
          (least == dealt_.size() || load[r] < load[least]))
        least = r;
    load.at(least) += flops;
    dealt_[least].push_back(number);
  }
  for (const std::vector<int>& numbers : dealt_) rounds_ = std::max(rounds_, numbers.size());
}

int MuonDirections::matrix_of(int rank, std::size_t round) const {
  const std::vector<int>& numbers = dealt_[static_cast<std::size_t>(rank)];
  return round < numbers.size() ? numbers[round] : -1;
}

Block MuonDirections::block(int number, int rank, Copies copies) const {
  if (number < 0) return {};
  const int in_model = layout_.stage().number * mesh_.copy().size() + rank;
  const model::Parameter& p = layout_.parameter(number);
  return copies == Copies::all ? layout_.held_on(p, in_model) : layout_.block_on(p, in_model);
}

namespace {

template <class Blocks>
void add_block(Blocks& blocks, const Block& b, DType type) {
  blocks.of.push_back(b);
  blocks.bytes.push_back(b.size() * static_cast<std::int64_t>(size_of(type)));
  blocks.size += b.size();
}

}  // namespace

// The blocks of one matrix, of each rank.
MuonDirections::Blocks MuonDirections::blocks_of_matrix(int number, Copies copies) const {
  Blocks blocks;
  for (int r = 0; r < mesh_.copy().size(); ++r) add_block(blocks, block(number, r, copies), layout_.options().compute);
  return blocks;
}

// This rank's blocks of the matrices of a round, by the rank that has the matrix.
MuonDirections::Blocks MuonDirections::own_blocks(std::size_t round, Copies copies) const {
  Blocks blocks;
  for (int r = 0; r < mesh_.copy().size(); ++r)
    add_block(blocks, block(matrix_of(r, round), mesh_.copy().rank(), copies), layout_.options().compute);
  return blocks;
}

// Sends blocks, and returns those that arrive; with one rank they are the same.
View MuonDirections::exchange(const Context& ctx, const View& sent, const Blocks& to, const Blocks& from) const {
  comm::Communicator& group = mesh_.copy();
  if (group.size() == 1) return sent;
  const View received = allocate(ctx, layout_.options().compute, {from.size}, kMemory);
  const std::int64_t bytes =
      std::reduce(to.bytes.begin(), to.bytes.end()) - to.bytes[static_cast<std::size_t>(group.rank())];
  const device::Timer timer(
      ctx, comm::exchange_span("all-to-all", device::ExchangeKind::all_to_all, group, static_cast<double>(bytes)));
  if (ctx.dry) return received;
  mesh_.traffic().add(comm::Along::several, received.dtype, bytes);
  group.start_all_to_all(bytes_at(sent), to.bytes, memory_at(received), from.bytes).wait();
  return received;
}

// Updates the momentum of the own rows of the round's matrices; returns the whole matrix that this rank has.
View MuonDirections::gather(const Context& ctx, const optim::Scalars& scalars, std::size_t round) const {
  const DType type = layout_.options().compute;
  const int mine = matrix_of(mesh_.copy().rank(), round);
  const Blocks to = own_blocks(round, Copies::first), from = blocks_of_matrix(mine, Copies::first);
  const View sent = allocate(ctx, type, {to.size}, kMemory);
  std::int64_t at = 0;
  for (int r = 0; r < mesh_.copy().size(); ++r) {
    const int number = matrix_of(r, round);
    if (number < 0 || own_.of(number).rows.count() == 0) continue;
    const ParameterShard& o = own_.of(number);
    const bool sends = to.of[static_cast<std::size_t>(r)].size() > 0;  // otherwise another rank has the same rows
    const View rows = sends ? sent.rows(at, at + o.m.size()) : allocate(ctx, type, {o.m.size()}, kMemory);
    optim::momentum(ctx,
                    {o.gradient, o.m, rows, static_cast<std::uint32_t>(number),
                     element_of(layout_.parameter(number), o.rows.begin)},
                    scalars);
    if (sends) at += o.m.size();
  }
  const View pieces = exchange(ctx, sent, to, from);
  if (mine < 0) return {};
  const std::vector<std::int64_t>& shape = layout_.parameter(mine).whole_shape();
  if (in_order(from.of, shape.back())) return pieces.reshaped({shape.front(), shape.back()});
  const View whole = allocate(ctx, type, {shape.front(), shape.back()}, kMemory);
  each_block(whole, pieces, from.of, [&](const View& block, const View& piece) { ops::copy(ctx, piece, block); });
  return whole;
}

// Sends rows of the own whole matrix; returns the own rows of the round's matrices, in the order of ranks.
View MuonDirections::scatter(const Context& ctx, const View& whole, std::size_t round) const {
  const int mine = matrix_of(mesh_.copy().rank(), round);
  const Blocks to = blocks_of_matrix(mine, Copies::all), from = own_blocks(round, Copies::all);
  View sent;
  if (mine >= 0 && in_order(to.of, whole.shape[1])) {
    sent = whole.reshaped({whole.size()});
  } else {
    sent = allocate(ctx, layout_.options().compute, {to.size}, kMemory);
    each_block(whole, sent, to.of, [&](const View& block, const View& piece) { ops::copy(ctx, block, piece); });
  }
  return exchange(ctx, sent, to, from);
}

void MuonDirections::compute(const Context& ctx, gemm::Engine& engine, const optim::Scalars& scalars,
                             const Step& step) const {
  for (std::size_t round = 0; round < rounds_; ++round) {
    const device::Scope scope(*ctx.arena);
    const View whole = gather(ctx, scalars, round);
    if (whole.rank > 0) optim::orthogonalize(ctx, engine, whole);
    const View directions = scatter(ctx, whole, round);
    std::int64_t at = 0;
    for (int r = 0; r < mesh_.copy().size(); ++r) {
      const int number = matrix_of(r, round);
      if (number < 0 || own_.of(number).rows.count() == 0) continue;
      const ParameterShard& o = own_.of(number);
      step(o, directions.rows(at, at + o.m.size()));
      at += o.m.size();
    }
  }
}

}  // namespace fp8::shard
