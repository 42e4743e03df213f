/// The ranks that share the experts of a copy of the parameters (ep), and the travel of rows between them.
#pragma once

#include "fp8/comm/mesh.h"
#include "fp8/model/exchange.h"
#include "fp8/shard/shard.h"

namespace fp8::shard {

/// Moves rows by all-to-all between the ranks of Mesh::experts().
class ExpertGroup final : public model::ExpertExchange {
 public:
  /// The groups of the mesh move memory of the device that contexts name, and outlive the object. `room`: see
  /// model::ExpertExchange.
  ExpertGroup(const comm::Mesh& mesh, std::int64_t experts, double room)
      : group_(&mesh.experts()), traffic_(&mesh.traffic()), experts_(experts), room_(room) {}

  int ranks() const override { return group_->size(); }
  int rank() const override { return group_->rank(); }
  std::int64_t first_expert(int rank) const override;
  double room() const override { return room_; }
  void gather_counts(const device::Context& ctx, const View& counts, const View& all) override;
  void exchange(const device::Context& ctx, const View& from, std::span<const std::int64_t> rows_to, const View& to,
                std::span<const std::int64_t> rows_from) override;

 private:
  comm::Communicator* group_;
  comm::Traffic* traffic_;
  std::int64_t experts_;
  double room_;
};

}  // namespace fp8::shard
