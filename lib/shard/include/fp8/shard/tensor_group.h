/// The ranks that divide the linears of a model (tp), and the travel of rows, sums and amaxes between them.
#pragma once

#include "fp8/comm/mesh.h"
#include "fp8/model/exchange.h"
#include "fp8/shard/shard.h"

namespace fp8::shard {

/// Moves rows and amaxes between the ranks of Mesh::tensor().
class TensorGroup final : public model::TensorExchange, public quant::AmaxReducer {
 public:
  /// The groups of the mesh move memory of the device that contexts name, and outlive the object. `copies`: adjacent
  /// ranks that have the same key and value heads.
  TensorGroup(const comm::Mesh& mesh, std::int64_t first_token, int copies)
      : group_(&mesh.tensor()), traffic_(&mesh.traffic()), first_token_(first_token), copies_(copies) {}

  int ranks() const override { return group_->size(); }
  int rank() const override { return group_->rank(); }
  std::int64_t first_row(std::int64_t rows, int rank) const override;
  std::int64_t first_token() const override { return first_token_; }
  void gather(const device::Context& ctx, const tensor::View& own, const tensor::View& all) override;
  void gather_parts(const device::Context& ctx, const tensor::View& own, const tensor::View& all,
                    const std::function<void(std::int64_t first, const tensor::View& rows)>& compute) override;
  void sum(const device::Context& ctx, const tensor::View& partial, const tensor::View& bias,
           const tensor::View& own) override;
  void sum_copies(const device::Context& ctx, const tensor::View& values) override;
  void maximum(const device::Context& ctx, const tensor::View& values) override;
  void total(const device::Context& ctx, const tensor::View& values) override;
  const quant::AmaxReducer& amax() const override { return *this; }
  void reduce(const device::Context& ctx, const tensor::View& amaxes) const override;

 private:
  void all_reduce(const device::Context& ctx, const tensor::View& values, comm::Reduce op) const;

  comm::Communicator* group_;
  comm::Traffic* traffic_;
  std::int64_t first_token_;
  int copies_;
};

}  // namespace fp8::shard
