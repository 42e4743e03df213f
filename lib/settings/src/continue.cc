// The precision of a run that is resumed.
#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/cli/command.h"
#include "fp8/json/json.h"
#include "fp8/settings/checks.h"
#include "fp8/settings/setting.h"

namespace fp8::settings {
namespace {

// Whether a phase records the flag.
bool in_phase(const std::string& name) {
  return std::ranges::any_of(all_settings(),
                             [&](const Setting& s) { return s.flag.name == name && s.resume == Resume::phase; });
}

// The flags of a run among `names` that determine how FP8 is computed; with `phase`, those of precision that phases
// record.
std::string flags_among(const std::vector<std::string>& names, bool phase) {
  std::string found;
  for (const Setting& s : all_settings())
    if ((s.tools & kStep) != 0 && (phase ? s.resume == Resume::phase : s.acts != nullptr) &&
        std::ranges::find(names, s.flag.name) != names.end())
      found += (found.empty() ? "" : ", ") + cli::flag_name(s.flag.name);
  return found;
}

// The settings of precision that the phase of a checkpoint has.
PrecisionConfig precision_of(const json::Value& phase, const std::string& what) {
  cli::Command command;
  command.flags = flags_of(kStep);
  cli::Arguments arguments(command);
  json::Value known = json::object({});
  for (const auto& [name, value] : phase.as_object())
    if (in_phase(name)) known.as_object().set(name, value);
  cli::parse_config(command, known, arguments, what);
  Config config;
  read_settings(arguments, kStep, config, false);
  PrecisionConfig& p = config.precision;
  // The phase has what these two amount to under the recipe, which for another recipe would be another choice.
  const auto gathers = [](const quant::Recipe* r) { return r->fp8_all_gather; };
  p.fp8_all_gather = p.fp8_all_gather || std::ranges::none_of(p.recipes_used(), gathers);
  const quant::Recipe* recipe = p.recipe_or_null();
  if (recipe && p.linear_recipes.empty() && p.power_of_2 == recipe->power_of_2) p.power_of_2.reset();
  return p;
}

}  // namespace

void set_resolved(json::Value& flags, const PrecisionConfig& given, const PrecisionConfig& resolved) {
  if (!flags.is_object()) return;
  Config a, b;
  a.precision = given;
  b.precision = resolved;
  for (const Setting& s : all_settings())
    if (s.resume == Resume::phase && s.value && s.value(a) != s.value(b))
      flags.as_object().set(s.flag.name, s.value(b));
}

void check_fp8_flags(const PrecisionConfig& precision) {
  if (precision.precision == Precision::fp8) return;
  if (const std::string flags = flags_among(precision.typed, false); !flags.empty())
    throw Error(flags + ": needs " + cli::flag_name("precision") + " fp8; it is " +
                std::string(name_of(precision.precision)));
}

void continue_precision(PrecisionConfig& precision, const ckpt::Checkpoint& checkpoint,
                        std::vector<std::string>& notes) {
  const json::Value* phase = recorded_phase(checkpoint);
  if (precision.chosen || phase == nullptr) return;
  PrecisionConfig before = precision_of(*phase, checkpoint.path() + ": /train: phase");
  if (before.precision != Precision::fp8 && before.precision == precision.precision) return;
  std::string as = cli::flag_name("precision") + " " + std::string(name_of(before.precision));
  if (before.precision == Precision::fp8) {
    const std::string quote = before.linear_recipes.empty() ? "" : "'";  // a shell expands the globs
    as += " " + cli::flag_name("recipe") + " " + quote + before.recipe_text() + quote;
  }
  if (const std::string flags = flags_among(precision.typed, true); !flags.empty())
    throw Error(flags + ": needs " + cli::flag_name("precision") + "; without it the run goes on as in " +
                checkpoint.path() + ", with " + as);
  if (const std::string flags = flags_among(precision.given, true); !flags.empty())
    notes.push_back(flags + ": not used: " + cli::flag_name("precision") + " is not given");
  notes.push_back("precision as in " + checkpoint.path() + ": " + as);
  before.emulate = precision.emulate;
  precision.execution.activation = before.execution.activation;
  before.execution = precision.execution;
  before.given = std::move(precision.given);
  std::erase_if(before.given, in_phase);
  precision = std::move(before);
}

}  // namespace fp8::settings
