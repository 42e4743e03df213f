// The recommendation is measured as fp8-step computes it: a model with the configuration that is written, whose linears
// gather FP8 codes where the recipe allows.
#include "recommend.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "fp8/base/file.h"
#include "fp8/json/json.h"

namespace fp8::inspect {
namespace {

double size_of(const Sensitivity& s) { return std::fabs(s.loss_change); }

// Measured linears with the smallest changes, whose sum is below a limit.
struct Chosen {
  std::set<int> linears;  // numbers
  double sum = 0;         // sum of |loss_change|
};

Chosen choose(std::vector<Sensitivity> order, double limit) {
  std::ranges::stable_sort(order, {}, size_of);
  Chosen chosen;
  for (const Sensitivity& s : order) {
    if (!(chosen.sum + size_of(s) < limit)) break;
    chosen.sum += size_of(s);
    chosen.linears.insert(s.linear);
  }
  return chosen;
}

// The precision with only the chosen linears in FP8, whatever precisions the checkpoint records.
settings::PrecisionConfig precision_with(const std::set<int>& chosen, const RecipeSetup& setup) {
  settings::PrecisionConfig precision = setup.config.precision;
  model::PrecisionRules& selection = precision.selection;
  std::vector<model::Parameter> table = setup.eval.model_spec.table;
  const auto is_chosen = [&](const model::Parameter& p) {
    return chosen.contains(static_cast<int>(&p - table.data()));
  };
  for (const model::Parameter& p : table)
    if (p.role == model::ParameterRole::head && is_chosen(p)) selection.lm_head = true;
  model::PrecisionRules anew = selection;
  anew.recipe = precision.recipe_or_null();
  model::assign_precisions(table, anew);
  for (const model::Parameter& p : table)
    if (p.fp8 && !is_chosen(p)) selection.filters.push_back(p.name);
  return precision;
}

// Mean loss of the batch under a precision. Collective.
double loss_under(const settings::PrecisionConfig& precision, const RecipeSetup& measured, const Inspection& all,
                  const train::DeviceSetup& device) {
  settings::InspectConfig config = measured.config;
  config.precision = precision;
  const RecipeSetup setup = resolve(config, all);
  InspectedModel inspected(setup, all, device, setup.eval.model_spec, nullptr);
  inspected.compute(setup, all);
  return inspected.loss();
}

void write(const json::Value& configuration, const settings::InspectConfig& config) {
  AtomicFile file(config.output, config.force);
  File out = File::open_update(file.path());
  out.write_all(json::dump(configuration, 2) + "\n");
  out.close();
  file.commit();
}

}  // namespace

bool recommend(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device,
               const LossChanges& measured) {
  const settings::InspectConfig& config = setup.config;
  const Chosen chosen = choose(measured.linears, *config.recommend);
  const bool any = !chosen.linears.empty();
  double change = 0;
  if (any) {
    const settings::PrecisionConfig precision = precision_with(chosen.linears, setup);
    change = loss_under(precision, setup, all, device) - measured.loss;
    comm::agree(all.host_comm, [&] {
      if (all.host_comm.rank() == 0) write(settings::configuration_of(precision), config);
    });
  }
  json::Array skipped;
  for (const Sensitivity& s : measured.linears)
    if (!chosen.linears.contains(s.linear))
      skipped.emplace_back(setup.eval.model_spec.table[static_cast<std::size_t>(s.linear)].name);
  all.journal.emit(json::object({{"type", "recommendation"},
                                 {"recipe", config.precision.recipe},
                                 {"limit", *config.recommend},
                                 {"skip", std::move(skipped)},
                                 {"fp8_linears", chosen.linears.size()},
                                 {"sum", chosen.sum},
                                 {"loss_change", change},
                                 {"path", any ? json::Value(config.output) : json::Value()}}));
  return any;
}

}  // namespace fp8::inspect
