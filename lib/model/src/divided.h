// Linears that the ranks of tensor parallelism divide, and the rows between them. A column-parallel linear (q, k, v;
// gate, up) has some rows of its weight on each rank: the rows of its input are gathered, and the gradients of the
// input added. A row-parallel one (o, down) has some columns: its outputs are added, then its bias, and the rows of the
// gradient are gathered. On one rank nothing is copied and no memory is allocated. On a GPU the rows of other ranks
// travel while rows that are here are computed, where the casts of a part of the rows are those of all. Private to the
// decoder.
//   M rows of the micro-batch, of which a rank has its own between linears
#pragma once

#include "fp8/base/round.h"
#include "fp8/linear/input.h"
#include "fp8/model/exchange.h"

namespace fp8::model {

using device::Context;
using tensor::View;

// The rows of a micro-batch.
struct DividedRows {
  TensorExchange& ranks;
  std::int64_t all;  // M

  std::int64_t first_own() const { return ranks.first_row(all, ranks.rank()); }
  std::int64_t own() const { return ranks.first_row(all, ranks.rank() + 1) - first_own(); }
  // The rows of the rank with the most, from which ranks that share experts plan their passes alike.
  std::int64_t most_own() const { return divide_up(all, ranks.ranks()); }
  // Memory from the arena for all rows [M, K] of which this rank has `own`; on one rank `own` itself.
  View memory(const Context& ctx, const View& own) const;
  // Own rows as those of all ranks, in memory().
  View gathered(const Context& ctx, const View& own) const;
  // Amaxes that operations of this rank have recorded become those of all ranks.
  void reduce_amax(const Context& ctx, const View& amax) const {
    if (!amax.empty()) ranks.reduce(ctx, amax);
  }
};

// What the linears of a micro-batch share, and the weight of one.
struct DividedLinear {
  const Context& ctx;
  gemm::Engine& engine;
  const DividedRows& rows;
  const linear::Weight& weight;
};

// A linear of which each rank has some rows.
struct ColumnParallel : DividedLinear {
  // Whether forward leaves codes for wgrad to backward in place of x, of which shape and type are read. Those of all
  // ranks' rows would take more memory than the own rows.
  bool keeps_codes(const View& x) const { return rows.ranks.ranks() == 1 && forms_kept(ctx, weight, x).columns; }
  // y [M, N] from the own rows of x. `amax` is that of all rows if the casts need one. Returns what backward reads: x,
  // or if keeps_codes(x) and `kept` is not null, codes in that memory.
  linear::Input forward(const View& own, const View& y, const View& amax, device::PooledMemory* kept) const;
  // The gradients from dy [M, N] and the result of forward; to.dx has the own rows. Other ranks' rows of x are gathered
  // again.
  void backward(const linear::Input& own, const View& dy, linear::Gradients to,
                const linear::KnownAmaxes& amaxes) const;

 private:
  void forward_rows(const View& own, const View& y, const View& amax) const;
  void backward_rows(const View& own, const View& dy, linear::Gradients to, const linear::KnownAmaxes& amaxes) const;
};

// A linear of which each rank has some columns.
struct RowParallel : DividedLinear {
  // As for ColumnParallel.
  bool keeps_codes(const View& x) const { return forms_kept(ctx, weight, x).columns; }
  // The own rows of y from x [M, K]; `amax` as in linear::ForwardOptions, `kept` and the result as for ColumnParallel.
  linear::Input forward(const View& x, const View& own, const View& amax, bool amax_known,
                        device::PooledMemory* kept) const;
  // The gradients from the own rows of dy and the result of forward; to.dx is [M, K].
  void backward(const linear::Input& x, const View& d_own, linear::Gradients to,
                const linear::KnownAmaxes& amaxes) const;
};

}  // namespace fp8::model
