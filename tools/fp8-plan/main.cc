// fp8-plan: memory, speed and communication of a run on ranks that need not exist. See fp8-plan(1).
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/h5/types.h"
#include "fp8/plan/report.h"
#include "fp8/settings/flags.h"

namespace {

using namespace fp8;

constexpr int kDoesNotFit = 1;  // or does not gain what is required

struct Report {
  const plan::Question& q;
  bool json, quiet;
  cli::Output out{};

  void record(const plan::Estimate& e) { out.json(plan::record_of(e, q.machine, q.config.tokens)); }
  void text(const std::string& lines) { out.text(lines); }
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

int plan_recipes(Report& r) {
  const std::vector<plan::Estimate> all = plan::compare(r.q);
  const plan::Estimate& asked = all.back();
  const settings::PlanConfig config = r.q.under(r.q.config.recipes.back());
  if (r.json) {
    for (const plan::Estimate& e : all) r.record(e);
    return status_of(r.q, asked);
  }
  r.text(plan::table_of(r.q, all));
  if (r.q.config.layers) r.text(plan::table_of_units(all));
  if (asked.fits && !*asked.fits)
    r.text(plan::text_of(plan::remedies(r.q, config, asked)));
  else
    r.text(plan::command_of(config, asked) + "\n");
  return status_of(r.q, asked);
}

int plan_fit(Report& r) {
  cli::Progress progress(r.quiet);
  const std::string& recipe = r.q.config.recipes.back();
  const plan::Fit found =
      plan::fit(r.q, recipe, [&](std::int64_t n) { progress.update(std::to_string(n) + " settings"); });
  progress.done();
  if (r.json)
    for (std::size_t i = found.fastest.size(); i-- > 0;) r.record(found.fastest[i].estimate);
  else {
    r.text(plan::table_of(r.q, found, r.q.estimate(r.q.under(recipe))));
    if (!found.fastest.empty())
      r.text(plan::command_of(found.fastest.front().config, found.fastest.front().estimate) + "\n");
  }
  return found.fastest.empty() ? kDoesNotFit : static_cast<int>(Exit::done);
}

// A number of ranks that the mesh does not divide is refused before anything is printed.
int plan_sweep(Report& r) {
  std::vector<plan::Estimate> all;
  for (const std::int64_t ranks : r.q.config.sweep) {
    settings::PlanConfig c = r.q.under(r.q.config.recipes.back());
    c.ranks = ranks;
    all.push_back(r.q.estimate(c));
  }
  if (r.json)
    for (const plan::Estimate& e : all) r.record(e);
  else
    r.text(plan::table_of_sweep(all));
  return status_of(r.q, all.back());
}

int run_plan(const cli::Arguments& arguments) {
  const settings::PlanConfig config = settings::plan_config(arguments);
  constexpr std::string_view kOfMachine = "machine.";
  std::vector<std::string> of_model, of_machine;
  for (const std::string& key : config.keys)
    key.starts_with(kOfMachine) ? of_machine.push_back(key.substr(kOfMachine.size())) : of_model.push_back(key);
  plan::MaybeMachine machine;
  if (!config.machine.empty()) machine = plan::open_machine(config.machine, of_machine);
  for (const char* flag : {"fit", "sweep", "layers", "require-gain", "tokens"})
    if (!machine && arguments.has(flag)) throw Error(cli::flag_name(flag) + ": needs " + cli::flag_name("machine"));
  if (!machine && !of_machine.empty())
    throw Error(cli::flag_name("set") + " machine." + of_machine.front() + ": needs " + cli::flag_name("machine"));
  for (const auto& [one, other] : {std::pair("fit", "sweep"),
                                   {"fit", "layers"},
                                   {"sweep", "layers"},
                                   {"sweep", "ranks"},
                                   {"fit", "require-gain"},
                                   {"sweep", "require-gain"}})
    if (arguments.has(one) && arguments.has(other))
      throw Error(cli::flag_name(one) + ": not together with " + cli::flag_name(other));
  const plan::Model model = plan::open_model(config.model, of_model);
  const plan::Question q{model, config, machine};
  Report report{q, arguments.flag("json"), arguments.flag("quiet")};
  if (!report.quiet)
    for (const std::string& note : model.notes) cli::print_note("fp8-plan", note);
  if (config.fit) return plan_fit(report);
  if (!config.sweep.empty()) return plan_sweep(report);
  return plan_recipes(report);
}

}  // namespace

int main(int argc, char** argv) {
  return fp8::cli::run(argc, argv, fp8::settings::plan_command(), run_plan, {fp8::h5::library_version()});
}
