// fp8-plan: memory, speed and communication of a run on ranks that need not exist. See fp8-plan(1).
#include <csignal>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/cli/signals.h"
#include "fp8/h5/types.h"
#include "fp8/plan/report.h"
#include "fp8/settings/flags.h"
#include "picture.h"

namespace {

using namespace fp8;

constexpr int kDoesNotFit = 1;  // or does not gain what is required

struct Report {
  const plan::Question& q;
  bool json, quiet;
  cli::Output out{};

  // With the command of these settings.
  void record(const settings::PlanConfig& c, const plan::Estimate& e) {
    json::Value record = plan::record_of(e, q.machine, q.config.tokens);
    const std::optional<std::string> command = plan::command_of(c, e);
    record.as_object().set("command", command ? json::Value(*command) : json::Value());
    out.json(record);
  }
  void text(const std::string& lines) { out.text(lines); }
  void draw(const std::vector<const plan::Estimate*>& all, std::vector<std::string> names, bool ranks) const {
    if (q.config.plot.empty() || all.empty()) return;
    plan::draw(plan::picture_of(q, all, std::move(names), ranks), q.config.plot, q.config.force);
  }
  void note(const plan::Estimate& e) const {
    for (const std::string& text : e.run.notes)
      if (!quiet && !text.empty()) cli::print_note("fp8-plan", text);
  }
};

// Status of the plan that was asked for last.
int status_of(const plan::Question& q, const plan::Estimate& e) {
  if (e.fits && !*e.fits) return kDoesNotFit;
  const std::optional<double>& gain = q.config.require_gain;
  if (!gain || !e.ratio || e.ratio->slow >= *gain) return static_cast<int>(Exit::done);
  cli::print_note("fp8-plan", cli::flag_name("require-gain") + ": " + format_double(*gain) +
                                  " times the speed of bf16 " + "is not reached at the low end of the interval");
  return kDoesNotFit;
}

// The command of the fastest recipe that fits, by name if several are asked for; without a machine that of the last.
void print_command(Report& r, const std::vector<plan::Estimate>& all) {
  const std::vector<std::string>& recipes = r.q.config.recipes;
  const plan::Estimate* const best = plan::fastest_of(all, recipes);
  const plan::Estimate& shown = best == nullptr ? all.back() : *best;
  const std::string& recipe = recipes[static_cast<std::size_t>(&shown - all.data()) - (all.size() - recipes.size())];
  if (recipes.size() > 1)
    r.text(recipe + (best == nullptr ? " is the last:\n" : " is the fastest of these that fits:\n"));
  r.text(plan::text_of_command(r.q.under(recipe), shown));
}

int plan_recipes(Report& r) {
  const std::vector<plan::Estimate> all = plan::compare(r.q);
  const plan::Estimate& asked = all.back();
  r.note(asked);
  std::vector<const plan::Estimate*> drawn;
  std::vector<std::string> names = r.q.config.recipes;
  if (all.size() > names.size()) names.insert(names.begin(), settings::kPlainRecipe);
  for (const plan::Estimate& e : all) drawn.push_back(&e);
  r.draw(drawn, names, false);
  if (r.json) {
    for (std::size_t i = 0; i < all.size(); ++i) r.record(r.q.under(names[i]), all[i]);
    return status_of(r.q, asked);
  }
  r.text(plan::table_of(r.q, all));
  if (r.q.config.layers) r.text(plan::table_of_units(all));
  const settings::PlanConfig last = r.q.under(r.q.config.recipes.back());
  r.text(asked.fits && !*asked.fits ? plan::text_of(plan::remedies(r.q, last, asked))
                                    : plan::text_of(asked, plan::sharded_gradients(r.q, last, asked)));
  if (!asked.fits || plan::fastest_of(all, r.q.config.recipes) != nullptr) print_command(r, all);
  return status_of(r.q, asked);
}

// The settings that --fit found under one recipe, which may be none.
struct FitOfRecipe {
  std::string recipe;
  plan::Fit found;
};

// Ends with the recipe during which it is stopped.
std::vector<FitOfRecipe> search(Report& r, cli::StopSignals& signals) {
  cli::Progress progress(r.quiet);
  const std::vector<std::string>& recipes = r.q.config.recipes;
  std::vector<FitOfRecipe> all;
  signals.begin();
  for (const std::string& recipe : recipes) {
    const std::string of_recipe = recipes.size() > 1 ? recipe + ": " : "";
    all.push_back({recipe, plan::fit(r.q, recipe,
                                     {[&](std::int64_t tried, std::int64_t most) {
                                        progress.update(of_recipe + std::to_string(tried) + " of at most " +
                                                        std::to_string(most) + " settings");
                                      },
                                      [&] { return signals.requested(); }})});
    if (all.back().found.stopped) break;
  }
  progress.done();
  for (std::size_t i = all.size(); i < recipes.size() && !r.quiet; ++i)
    cli::print_note("fp8-plan", recipes[i] + " was not searched: the search was stopped");
  return all;
}

int plan_fit(Report& r, cli::StopSignals& signals) {
  const std::vector<FitOfRecipe> all = search(r, signals);
  std::vector<const plan::Estimate*> drawn;
  std::vector<std::string> names;
  const FitOfRecipe* best = nullptr;
  for (const FitOfRecipe& one : all) {
    const std::vector<plan::Candidate>& fastest = one.found.fastest;
    for (std::size_t i = 0; i < fastest.size(); ++i) {
      drawn.push_back(&fastest[i].estimate);
      names.push_back((all.size() > 1 ? one.recipe + " " : "") + std::to_string(i + 1));
    }
    if (!fastest.empty() && (best == nullptr || plan::is_faster(fastest.front(), best->found.fastest.front())))
      best = &one;
  }
  r.draw(drawn, std::move(names), false);
  for (const FitOfRecipe& one : all) {
    const std::vector<plan::Candidate>& fastest = one.found.fastest;
    if (r.json)
      for (std::size_t i = fastest.size(); i-- > 0;) r.record(fastest[i].config, fastest[i].estimate);
    else
      r.text(plan::table_of(r.q, one.found, r.q.estimate(r.q.under(one.recipe))));
  }
  if (best == nullptr) return kDoesNotFit;
  if (r.json) return static_cast<int>(Exit::done);
  if (all.size() > 1) r.text(best->recipe + " has the fastest of these:\n");
  const auto& [config, estimate] = best->found.fastest.front();
  r.text(plan::text_of(estimate, plan::sharded_gradients(r.q, config, estimate)) +
         plan::text_of_command(config, estimate));
  return static_cast<int>(Exit::done);
}

// A number of ranks that the mesh does not divide is refused before anything is printed.
int plan_sweep(Report& r) {
  const std::vector<plan::Pair> all = plan::sweep(r.q, r.q.config.recipes.back());
  r.note(all.back().asked);
  std::vector<const plan::Estimate*> drawn;
  std::vector<std::string> names;
  for (const plan::Pair& p : all) {
    drawn.push_back(&p.asked);
    names.push_back(counted(p.asked.run.mesh.ranks(), "rank"));
  }
  r.draw(drawn, std::move(names), true);
  if (r.json)
    for (const plan::Pair& p : all) r.record(r.q.under(r.q.config.recipes.back()), p.asked);
  else
    r.text(plan::table_of_sweep(all));
  return status_of(r.q, all.back().asked);
}

// Throws Error for flags that exclude each other, or that need a machine.
void check_flags(const cli::Arguments& arguments, bool machine) {
  for (const char* flag : {"fit", "sweep", "layers", "require-gain", "tokens"})
    if (!machine && arguments.has(flag)) throw Error(cli::flag_name(flag) + ": needs " + cli::flag_name("machine"));
  for (const auto& [one, other] : {std::pair("fit", "sweep"),
                                   {"fit", "layers"},
                                   {"sweep", "layers"},
                                   {"sweep", "ranks"},
                                   {"fit", "require-gain"},
                                   {"sweep", "require-gain"}})
    if (arguments.has(one) && arguments.has(other))
      throw Error(cli::flag_name(one) + ": not together with " + cli::flag_name(other));
}

int run_plan(const cli::Arguments& arguments, cli::StopSignals& signals) {
  settings::PlanConfig config = settings::plan_config(arguments);
  constexpr std::string_view kOfMachine = "machine.";
  std::vector<std::string> of_model, of_machine;
  for (const std::string& key : config.keys)
    key.starts_with(kOfMachine) ? of_machine.push_back(key.substr(kOfMachine.size())) : of_model.push_back(key);
  plan::FoundMachine found = plan::find_machine(config.machine, of_machine);
  // A stored machine is no machine for another device.
  if (config.machine.empty() && found.machine && config.device.value_or(found.machine->device) != found.machine->device)
    found = {};
  check_flags(arguments, found.machine.has_value());
  if (!found.machine && !of_machine.empty())
    throw Error(cli::flag_name("set") + " machine." + of_machine.front() + ": needs " + cli::flag_name("machine"));
  if (!config.plot.empty()) {
    (void)plot::image_of(config.plot);
    check_output(config.plot, config.force, {});
  }
  const plan::Model model = plan::open_model(config.model, of_model);
  const plan::Question q{model, config, found.machine};
  plan::check_recipes(config, q.device(), q.machine);
  Report report{q, arguments.flag("json"), arguments.flag("quiet")};
  if (!report.quiet) {
    if (!found.note.empty()) cli::print_note("fp8-plan", found.note);
    for (const std::string& note : model.notes) cli::print_note("fp8-plan", note);
  }
  if (config.fit) return plan_fit(report, signals);
  if (!config.sweep.empty()) return plan_sweep(report);
  return plan_recipes(report);
}

}  // namespace

int main(int argc, char** argv) {
  fp8::cli::StopSignals signals({.early = fp8::cli::end_by_signal, .first = {}, .again = [] {
                                   fp8::cli::end_by_signal(SIGINT);
                                 }});  // before any thread
  return fp8::cli::run(argc, argv, fp8::settings::plan_command(),
                       [&](const fp8::cli::Arguments& arguments) { return run_plan(arguments, signals); },
                       {fp8::h5::library_version()});
}
