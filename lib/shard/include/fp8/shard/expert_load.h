/// How many rows the experts of a model got, and the losses that balance them: a loss of the shares of experts, and one
/// of the size of the routers' logits.
///   L layers, E experts, k of them for each token
/// Source: Switch Transformers, arXiv:2101.03961, with the shares of all data-parallel ranks, per layer; ST-MoE,
/// arXiv:2202.08906.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fp8/comm/comm.h"
#include "fp8/hf/config.h"
#include "fp8/model/routing.h"

namespace fp8::shard {

/// What the losses that balance experts need in a step.
struct BalanceStep {
  double aux = 0;     ///< X of X aux_loss, aux_loss = sum over layers of E sum_e f_e P_e
  double z = 0;       ///< X of X z_loss, z_loss = sum over layers of the mean of log_sum^2 over the tokens
  double tokens = 0;  ///< tokens of the step without padding, of all ranks
  comm::Communicator* ranks = nullptr;  ///< the ranks that share the step; null: nothing is reduced
  comm::Communicator* stage = nullptr;  ///< the ranks that share the step and have the same layers; null: all
};

/// Loads and losses of a step, of all ranks. A layer has experts if it has any rows.
struct RoutingResult {
  double aux_loss = 0;             ///< weighted by the tokens of accumulation steps, without X
  double z_loss = 0;               ///< the same
  std::vector<std::int64_t> rows;  ///< [L, E]: rows of experts; of layers without experts 0
  std::int64_t experts = 0;        ///< E
  std::int64_t passes = 0;         ///< the most passes in which a layer computed its rows

  /// The largest over the mean number of rows of the experts of a layer, of the layer where that is largest; 0 without
  /// rows.
  double largest_load() const;
  /// Pairs of a layer and one of its experts that had no rows.
  std::int64_t idle() const;
};

/// Observes the routers of one rank. It is the observer of micro-batches that are computed one after the other; several
/// in flight have observers of their own.
class ExpertLoad final : public model::RoutingObserver {
 public:
  /// The FP8 GEMMs of a layer's experts, see model::planned_experts_fp8().
  using Planned = std::function<std::int64_t(int layer, std::int64_t first_expert, std::span<const std::int64_t> first,
                                             bool backward)>;

  /// Allocates from the context's arena. The model has experts. At most `in_flight` micro-batches are between forward
  /// and backward.
  ExpertLoad(const device::Context& ctx, const hf::ModelConfig& config, Planned planned, int in_flight = 1);
  ExpertLoad(const ExpertLoad&) = delete;
  ExpertLoad& operator=(const ExpertLoad&) = delete;

  /// Begins a step of training.
  void begin(const BalanceStep& step);
  /// Begins passes without losses and without backward.
  void begin_inference();
  /// FP8 GEMMs that the experts of this rank must have run since begin().
  std::int64_t planned_gemms() const { return planned_gemms_; }
  /// Sums over the ranks of the step. Collective.
  RoutingResult finish() const;

  /// The observer of the micro-batch with this number in its step. Forward and backward take them in order.
  model::RoutingObserver& of_micro_batch(int number) {
    return flights_[static_cast<std::size_t>(number) % flights_.size()];
  }
  void routed(const device::Context& ctx, int layer, const ops::Routes& routes,
              std::span<const std::int64_t> first) override {
    flights_.front().routed(ctx, layer, routes, first);
  }
  void computed(int layer, std::int64_t first_expert, std::span<const std::int64_t> first) override {
    flights_.front().computed(layer, first_expert, first);
  }
  model::RoutingGradients gradients(const device::Context& ctx) override { return flights_.front().gradients(ctx); }

 private:
  /// What was observed of one micro-batch between forward and backward.
  class Flight final : public model::RoutingObserver {
   public:
    Flight(const device::Context& ctx, ExpertLoad& load);
    void clear();
    void routed(const device::Context& ctx, int layer, const ops::Routes& routes,
                std::span<const std::int64_t> first) override;
    void computed(int layer, std::int64_t first_expert, std::span<const std::int64_t> first) override;
    model::RoutingGradients gradients(const device::Context& ctx) override;

   private:
    ExpertLoad& load_;
    tensor::View sums_;                 // f64 [L, E + 2], see ops::add_route_sums()
    std::vector<std::int64_t> passes_;  // [L]
    std::vector<std::int64_t> counts_;  // [L, E]
  };
  bool has_losses() const { return step_.aux > 0 || step_.z > 0; }

  std::int64_t layers_, experts_;
  Planned planned_;
  tensor::View aux_;  // f32 [L, E], of the micro-batch in backward
  BalanceStep step_;
  bool training_ = false;
  std::int64_t planned_gemms_ = 0;
  std::int64_t most_passes_ = 0;      // of the step
  std::vector<std::int64_t> rows_;    // [L, E] of the step
  double aux_loss_ = 0, z_loss_ = 0;  // this rank's part
  std::vector<Flight> flights_;
};

}  // namespace fp8::shard
