/// Interfaces through which rows travel between the ranks that share a model: those that share experts (ep), each of
/// which has some of the experts of every layer and computes the rows that all ranks route to them; and those that
/// divide its linears (tp), each of which computes all rows with a part of every linear.
///   E experts, G ranks that share them; M rows, T ranks that divide linears, C hidden
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fp8/quant/quantize.h"
#include "fp8/tensor/tensor.h"

namespace fp8::model {

/// The ranks that share experts, in the order of the experts.
class ExpertExchange {
 public:
  virtual ~ExpertExchange() = default;
  /// G, at least 2.
  virtual int ranks() const = 0;
  /// The number of this rank among them.
  virtual int rank() const = 0;
  /// The first expert of a rank, E for rank G. Ranks have about as many experts, at least one each.
  virtual std::int64_t first_expert(int rank) const = 0;
  /// Rows of experts, as a multiple of the mean, that a layer holds at a time.
  virtual double room() const = 0;
  /// Gathers every rank's numbers of rows by expert in `all`, i32 [G, E], from those of this rank, i32 [E], both on the
  /// context's device. Nothing travels in a dry context. Collective.
  virtual void gather_counts(const device::Context& ctx, const tensor::View& counts, const tensor::View& all) = 0;
  /// Sends rows_to[r] rows of `from` to rank r, in the order of ranks; rows_from[r] rows of rank r arrive in `to`, also
  /// in their order. Both have C columns of the same type and are contiguous. Nothing travels in a dry context.
  /// Collective.
  virtual void exchange(const device::Context& ctx, const tensor::View& from, std::span<const std::int64_t> rows_to,
                        const tensor::View& to, std::span<const std::int64_t> rows_from) = 0;
};

/// The ranks that divide linears. Between linears each has a contiguous share of the rows. Objects of this class itself
/// are one rank that has everything, where nothing travels. A reducer of amaxes over these ranks.
class TensorExchange : public quant::AmaxReducer {
 public:
  /// T.
  virtual int ranks() const { return 1; }
  /// The number of this rank among them.
  virtual int rank() const { return 0; }
  /// The first of M rows that a rank has, M for rank T: about M / T each, and at least one if M is T or more.
  virtual std::int64_t first_row(std::int64_t rows, int rank) const { return rank == 0 ? 0 : rows; }
  /// Gathers the own rows of every rank, [own, C], into `all` [M, C], of the same type; contiguous. Collective.
  virtual void gather(const device::Context& ctx, const tensor::View& own, const tensor::View& all) {
    if (!ctx.dry && all.data != own.data)
      device::copy_bytes(ctx, all.data, ctx.device, own.data, ctx.device, own.bytes());
  }
  /// Whether what start_shift() sends travels while the device of the context computes.
  virtual bool overlaps(const device::Context&) const { return false; }
  /// Starts to send `own` [own, C] to the rank `places` ranks after this one, and to receive the rows of the rank as
  /// many places before this one in `arriving`, 0 < places < T. The result lets the context wait for both. Collective.
  virtual std::function<void()> start_shift(const device::Context&, const tensor::View& /*own*/, int /*places*/,
                                            const tensor::View& /*arriving*/) {
    return [] {};
  }
  /// Adds the `partial` [M, C] of all ranks: each gets its own rows of the sum in `own` [own, C] of the same type. The
  /// terms travel in their type, are added in f32 in the order of the ranks, with `bias` [C] of that type if it is not
  /// empty, and rounded once. Collective.
  virtual void sum(const device::Context&, const tensor::View& /*partial*/, const tensor::View& /*bias*/,
                   const tensor::View& /*own*/) {}
  /// Adds matrices [M, K] of the ranks that have the same key and value heads, as sum() does; the first of them gets
  /// the sum, and the others zeros. Contiguous rows with any stride. Nothing happens if no heads are on several ranks.
  /// Collective.
  virtual void sum_copies(const device::Context&, const tensor::View& /*values*/) {}
  /// f32 [n] becomes the largest of all ranks. Collective.
  virtual void maximum(const device::Context&, const tensor::View& /*values*/) {}
  /// f32 [n] becomes the sum over all ranks. Collective.
  virtual void total(const device::Context&, const tensor::View& /*values*/) {}
  void reduce(const device::Context&, const tensor::View& /*amaxes*/) const override {}
};

}  // namespace fp8::model
