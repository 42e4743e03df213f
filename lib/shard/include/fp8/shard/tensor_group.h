/// The ranks that divide the linears of a model (tp), and the travel of rows, sums and amaxes between them.
#pragma once

#include "fp8/comm/mesh.h"
#include "fp8/model/exchange.h"
#include "fp8/shard/shard.h"

namespace fp8::shard {

/// Moves rows and amaxes between the ranks of Mesh::tensor().
class TensorGroup final : public model::TensorExchange {
 public:
  /// The groups of the mesh move memory of the device that contexts name, and outlive the object. `copies`: adjacent
  /// ranks that have the same key and value heads.
  TensorGroup(const comm::Mesh& mesh, int copies)
      : group_(&mesh.tensor()), traffic_(&mesh.traffic()), copies_(copies) {}

  int ranks() const override { return group_->size(); }
  int rank() const override { return group_->rank(); }
  std::int64_t first_row(std::int64_t rows, int rank) const override;
  void gather(const device::Context& ctx, const tensor::View& own, const tensor::View& all) override;
  bool overlaps(const device::Context& ctx) const override { return ctx.device != device::DeviceType::host; }
  std::function<void()> start_shift(const device::Context& ctx, const tensor::View& own, int places,
                                    const tensor::View& arriving) override;
  void sum(const device::Context& ctx, const tensor::View& partial, const tensor::View& bias,
           const tensor::View& own) override;
  void sum_copies(const device::Context& ctx, const tensor::View& values) override;
  void maximum(const device::Context& ctx, const tensor::View& values) override {
    all_reduce(ctx, values, comm::Reduce::max);
  }
  void total(const device::Context& ctx, const tensor::View& values) override {
    all_reduce(ctx, values, comm::Reduce::sum);
  }
  void reduce(const device::Context& ctx, const tensor::View& amaxes) const override;

 private:
  void all_reduce(const device::Context& ctx, const tensor::View& values, comm::Reduce op) const;

  comm::Communicator* group_;
  comm::Traffic* traffic_;
  int copies_;
};

}  // namespace fp8::shard
