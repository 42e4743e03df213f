#include "routes.h"

#include <array>

#include "activity.h"
#include "fp8/statistics/routes.h"

namespace fp8::inspect {
namespace {

// Keeps the experts of each token.
class RouteRecorder final : public model::RoutingObserver {
 public:
  void routed(const Context& ctx, int layer, const ops::Routes& routes,
              std::span<const std::int64_t> /*first*/) override {
    if (ctx.dry) return;
    chosen.per_token = routes.per_token();
    chosen.of_layer[layer] = tensor::to_host<std::int32_t>(ctx, routes.experts);
  }
  void computed(int /*layer*/, std::int64_t /*first_expert*/, std::span<const std::int64_t> /*first*/) override {}
  model::RoutingGradients gradients(const Context& /*ctx*/) override { return {}; }

  ChosenExperts chosen;
};

// The choice in a precision by the name that --routes has for it.
ChosenExperts chosen_in(const std::string& name, settings::InspectConfig config, const Inspection& all) {
  config.routes = name;
  config.precision = settings::precision_of_routes(config);
  RecipeSetup setup = resolve(config, all);
  const train::DeviceSetup device(config.device, setup.config.precision, all.mesh);
  Activity activity(all.journal, static_cast<int>(setup.eval.model_spec.config.num_hidden_layers));
  activity.begin("routes in " + name);
  setup.eval.model_spec.execution.observer = &activity;
  InspectedModel inspected(setup, all, device, setup.eval.model_spec, nullptr);
  return chosen_experts(inspected);
}

}  // namespace

ChosenExperts chosen_experts(InspectedModel& inspected) {
  shard::ShardedModel& model = *inspected.model;
  RouteRecorder recorder;
  const bool recorded = model.store.scales().record_amaxes(false);
  inspected.sequence_losses([&](const Context& ctx, const model::Batch& batch, const View& losses) {
    model::Batch observed = batch;
    observed.routing = &recorder;
    model.decoder.forward(ctx, model.engine, model.store, observed, losses);
  });
  model.store.scales().record_amaxes(recorded);
  return std::move(recorder.chosen);
}

ChosenExperts chosen_for_reference(const settings::InspectConfig& config, const Inspection& all) {
  ChosenExperts reference = chosen_in(config.routes, config, all);
  if (config.routes == settings::kExactRecipe)
    emit_routes(reference, chosen_in(settings::kPlainRecipe, config, all), config, settings::kPlainRecipe, all);
  return reference;
}

void emit_routes(const ChosenExperts& reference, const ChosenExperts& chosen, const settings::InspectConfig& config,
                 const std::string& recipe, const Inspection& all) {
  for (const auto& [layer, experts] : chosen.of_layer) {
    statistics::RouteDifference d =
        statistics::route_difference(reference.of_layer.at(layer), experts, chosen.per_token);
    std::array<std::int64_t, 4> counts{d.tokens, d.differing, d.experts, d.other_experts};
    all.host_comm.all_reduce(std::span<std::int64_t>(counts), comm::Reduce::sum);
    d = {counts[0], counts[1], counts[2], counts[3]};
    all.journal.emit(record_of(d, layer, recipe, config.routes));
  }
}

}  // namespace fp8::inspect
