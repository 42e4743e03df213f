/// Interface between the decoder and whoever wants to know how its routers chose: the losses that balance experts,
/// records of their load, and studies of routes.
#pragma once

#include <cstdint>
#include <span>

#include "fp8/ops/route.h"

namespace fp8::model {

/// The losses that balance experts, as gradients by layer.
struct RoutingGradients {
  tensor::View aux{};  ///< f32 [L, E]: rows are BalanceGradients::aux of each layer; empty: none
  float z = 0;         ///< BalanceGradients::z of every layer
};

/// Receives the routes of a micro-batch. One thread calls it.
class RoutingObserver {
 public:
  virtual ~RoutingObserver() = default;
  /// The router of layer `layer`, from 0, has chosen experts; recomputed layers are not repeated. `first`: E + 1 rows,
  /// of which expert e has [first[e], first[e + 1]). The views are valid during the call. In a dry context it is called
  /// too, so that the memory which it allocates from the arena is planned; it must return that memory.
  virtual void routed(const device::Context& ctx, int layer, const ops::Routes& routes,
                      std::span<const std::int64_t> first) = 0;
  /// The experts of this rank in layer `layer` compute rows: of all ranks that share them. Expert first_expert + i has
  /// the rows [first[i], first[i + 1]). Called for each pass of a layer whose rows have no room together; recomputed
  /// passes are not repeated. Not called in a dry context.
  virtual void computed(int layer, std::int64_t first_expert, std::span<const std::int64_t> first) = 0;
  /// In training, after the routers of all layers and before backward: the gradients of the losses that balance
  /// experts, valid until the end of the micro-batch.
  virtual RoutingGradients gradients(const device::Context& ctx) = 0;
};

}  // namespace fp8::model
