// The recommendation is measured as fp8-step computes it: a model with the configuration that is written, whose linears
// gather FP8 codes where the recipe allows.
#include "recommend.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "activity.h"
#include "fp8/base/expert_name.h"
#include "fp8/base/file.h"
#include "fp8/json/json.h"
#include "fp8/statistics/records.h"

namespace fp8::inspect {
namespace {

double harm_of(const Sensitivity& s) { return std::isfinite(s.change.change) ? s.change.change : HUGE_VAL; }

// Groups of linears.
struct Chosen {
  std::set<int> kept, others;  // numbers of linears, that stay in the recipe and that do not
  double harm = 0;             // sum over the linears of `kept` that hurt
  std::int64_t hurting = 0;    // number of groups that hurt
};

Chosen choose(const std::vector<Sensitivity>& groups, double limit) {
  const auto tested = static_cast<std::int64_t>(groups.size());
  Chosen chosen;
  std::vector<const Sensitivity*> hurting;
  for (const Sensitivity& s : groups) {
    if (s.change.hurts(tested))
      hurting.push_back(&s);
    else
      chosen.kept.insert(s.linears.begin(), s.linears.end());
  }
  std::ranges::stable_sort(hurting, {}, [](const Sensitivity* s) { return harm_of(*s); });
  chosen.hurting = static_cast<std::int64_t>(hurting.size());
  bool below = true;
  for (const Sensitivity* s : hurting) {
    below = below && chosen.harm + harm_of(*s) < limit;
    if (below) chosen.harm += harm_of(*s);
    (below ? chosen.kept : chosen.others).insert(s->linears.begin(), s->linears.end());
  }
  return chosen;
}

// Globs of the linears that are `wanted`, which match no other: their names, or one glob for a weight of all experts of
// a layer.
template <class Wanted>
std::vector<std::string> globs_of(const std::vector<model::Parameter>& table, const Wanted& wanted) {
  std::set<std::string> partly, known;  // globs of experts' weights of which one is not wanted
  for (const model::Parameter& p : table)
    if (p.expert >= 0 && p.matmul() && !wanted(p)) partly.insert(glob_of_experts(p.name));
  std::vector<std::string> globs;
  for (const model::Parameter& p : table) {
    if (!wanted(p)) continue;
    const std::string glob = p.expert >= 0 ? glob_of_experts(p.name) : p.name;
    const bool all = p.expert >= 0 && !partly.contains(glob);
    if (!all || known.insert(glob).second) globs.push_back(all ? glob : p.name);
  }
  return globs;
}

// The precision with only some linears in FP8, whatever precisions the checkpoint records: those that are kept, and,
// with another recipe for them, the others.
settings::PrecisionConfig precision_with(const Chosen& chosen, const RecipeSetup& setup) {
  settings::PrecisionConfig precision = setup.config.precision;
  const std::string& other = setup.config.recommend_recipe;
  model::PrecisionRules& selection = precision.selection;
  std::vector<model::Parameter> table = setup.eval.model_spec.table;
  const auto stays = [&](const model::Parameter& p) {
    const auto number = static_cast<int>(&p - table.data());
    return chosen.kept.contains(number) || (!other.empty() && chosen.others.contains(number));
  };
  for (const model::Parameter& p : table)
    if (p.role == model::ParameterRole::head && stays(p)) selection.lm_head = true;
  model::PrecisionRules anew = selection;
  anew.recipe = precision.recipe_or_null();
  model::assign_precisions(table, anew);
  const auto leaves = [&](const model::Parameter& p) { return p.fp8 && !stays(p); };
  for (std::string& glob : globs_of(table, leaves)) selection.filters.push_back(std::move(glob));
  if (other.empty()) return precision;
  const auto replaced = [&](const model::Parameter& p) {
    return chosen.others.contains(static_cast<int>(&p - table.data()));
  };
  for (const std::string& glob : globs_of(table, replaced)) precision.linear_recipes.push_back({glob, other});
  return precision;
}

// The change of the loss of all batches under a precision. Collective.
LossChange change_under(const settings::PrecisionConfig& precision, const RecipeSetup& setup, const Inspection& all,
                        const train::DeviceSetup& device, const LossChanges& measured) {
  settings::InspectConfig config = setup.config;
  config.precision = precision;
  RecipeSetup recommended = resolve(config, all);
  Activity activity(all.journal, static_cast<int>(setup.eval.model_spec.config.num_hidden_layers));
  activity.begin("the recommended configuration");
  recommended.eval.model_spec.execution.observer = &activity;
  InspectedModel inspected(recommended, all, device, recommended.eval.model_spec, nullptr);
  inspected.compute(recommended, all);  // which checks that as many GEMMs as planned are FP8
  inspected.model->store.scales().record_amaxes(false);
  std::vector<double> losses;
  for (std::int64_t batch = 0; batch < config.batches; ++batch) {
    inspected.read_batch(recommended, all, batch);
    const std::vector<double> more = inspected.sequence_losses();
    losses.insert(losses.end(), more.begin(), more.end());
  }
  PairedSums sums;
  sums.add(losses, measured.losses, measured.targets);
  return sums.change(all.host_comm);
}

void write(const json::Value& configuration, const settings::InspectConfig& config) {
  AtomicFile file(config.output, config.force);
  File out = File::open_update(file.path());
  out.write_all(json::dump(configuration, 2) + "\n");
  out.close();
  file.commit();
}

// What could not have been found: the least harm that would have counted in every group that does not hurt, and how
// many more sequences would find a smaller one: the limit, or, where the limit is no smaller or out of reach, half of
// the least harm.
void set_noise(json::Object& record, const LossChanges& measured, double limit) {
  const auto tested = static_cast<std::int64_t>(measured.groups.size());
  const LossChange* widest = nullptr;
  for (const Sensitivity& s : measured.groups)
    if (std::isfinite(s.change.standard_error) && !s.change.hurts(tested) &&
        (widest == nullptr || s.change.standard_error > widest->standard_error))
      widest = &s.change;
  if (widest == nullptr) return;
  const double noise = widest->noise(tested);
  record.set("groups", tested);
  record.set("sequences", widest->sequences);
  record.set("noise", noise);
  for (const double smaller : {limit, noise / 2}) {
    if (!(smaller > 0 && smaller < noise)) continue;
    const std::optional<std::int64_t> enough = widest->sequences_for(smaller, tested);
    if (!enough) continue;
    record.set("more_sequences", *enough - widest->sequences);
    record.set("more_would_show", smaller);
    return;
  }
}

json::Array names_of(const std::set<int>& linears, const RecipeSetup& setup) {
  json::Array names;
  for (const int number : linears)
    names.emplace_back(setup.eval.model_spec.table[static_cast<std::size_t>(number)].name);
  return names;
}

}  // namespace

bool recommend(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device,
               const LossChanges& measured) {
  const settings::InspectConfig& config = setup.config;
  const Chosen chosen = choose(measured.groups, *config.recommend);
  const bool replaced = !config.recommend_recipe.empty(),
             any = !chosen.kept.empty() || (replaced && chosen.hurting > 0);
  LossChange change;
  if (any) {
    const settings::PrecisionConfig precision = precision_with(chosen, setup);
    change = change_under(precision, setup, all, device, measured);
    comm::agree(all.host_comm, [&] {
      if (comm::is_writer(all.host_comm)) write(settings::configuration_of(precision), config);
    });
  }
  json::Value record = json::object({{"type", "recommendation"},
                                     {"recipe", config.precision.recipe_text()},
                                     {"limit", *config.recommend},
                                     {"skip", names_of(replaced ? std::set<int>() : chosen.others, setup)},
                                     {"other_recipe", replaced ? json::Value(config.recommend_recipe) : json::Value()},
                                     {"in_other_recipe", names_of(replaced ? chosen.others : std::set<int>(), setup)},
                                     {"fp8_linears", chosen.kept.size() + (replaced ? chosen.others.size() : 0)},
                                     {"hurting_groups", chosen.hurting},
                                     {"sum", chosen.harm}});
  json::Object& o = record.as_object();
  set_noise(o, measured, *config.recommend);
  o.set("loss_change", change.change);
  o.set("standard_error", change.standard_error);
  o.set("path", any ? json::Value(config.output) : json::Value());
  all.journal.emit(record);
  return any;
}

}  // namespace fp8::inspect
