// The experts that routers choose for a batch, compared between two precisions. Private to the crate.
#pragma once

#include <map>
#include <vector>

#include "inspect_model.h"

namespace fp8::inspect {

// The experts of this rank's tokens by layer, of those that have experts: [M, k] in the order of ops::Routes.
struct ChosenExperts {
  std::int64_t per_token = 0;  // k
  std::map<int, std::vector<std::int32_t>> of_layer;
};

// The choice in a forward pass over the batch, of which no amax is recorded. Collective.
ChosenExperts chosen_experts(InspectedModel& inspected);

// The choice in the precision InspectConfig::routes, which others are compared with. If that is fp32, emits the records
// of bf16 too. Throws AgreedError. Collective.
ChosenExperts chosen_for_reference(const settings::InspectConfig& config, const Inspection& all);

// Emits a {"type":"routes"} record for each layer with experts: `chosen` in `recipe` against `reference`, the choice in
// the precision InspectConfig::routes. Collective.
void emit_routes(const ChosenExperts& reference, const ChosenExperts& chosen, const settings::InspectConfig& config,
                 const std::string& recipe, const Inspection& all);

}  // namespace fp8::inspect
