/// Interface through which rows travel between the ranks that share the experts of a model (ep). Each rank has some of
/// the experts of every layer, and computes the rows that all ranks route to them.
///   E experts, G ranks that share them
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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
  /// Every rank's numbers of rows by expert, [G, E] on the host, from those of this rank, i32 [E] on the context's
  /// device. Collective.
  virtual std::vector<std::int32_t> gather_counts(const device::Context& ctx, const tensor::View& counts) = 0;
  /// Sends rows_to[r] rows of `from` to rank r, in the order of ranks; rows_from[r] rows of rank r arrive in `to`, also
  /// in their order. Both have C columns of the same type and are contiguous. Not in a dry context. Collective.
  virtual void exchange(const device::Context& ctx, const tensor::View& from, std::span<const std::int64_t> rows_to,
                        const tensor::View& to, std::span<const std::int64_t> rows_from) = 0;
};

}  // namespace fp8::model
