// The precision of a run that is resumed.
#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/cli/command.h"
#include "fp8/json/json.h"
#include "fp8/settings/checks.h"
#include "fp8/settings/setting.h"

namespace fp8::settings {
namespace {

// The flags among `names` that determine how FP8 is computed; with `any`, all flags of precision that phases record.
std::string flags_of_phase(const std::vector<std::string>& names, bool any) {
  std::string found;
  for (const Setting& s : all_settings()) {
    if ((s.tools & kSide) == 0 || s.flag.name == "device" || s.flag.name == "attention") continue;
    if (s.acts == nullptr && !(any && s.resume == Resume::phase)) continue;
    if (s.flag.name == "emulate" && any) continue;  // no phase records it
    if (std::ranges::find(names, s.flag.name) != names.end())
      found += (found.empty() ? "" : ", ") + cli::flag_name(s.flag.name);
  }
  return found;
}

// The settings of precision that the phase of a checkpoint has.
PrecisionConfig precision_of(const json::Value& phase, const std::string& what) {
  cli::Command command;
  command.flags = flags_of(kSide);
  cli::Arguments arguments(command);
  json::Value known = json::object({});
  for (const auto& [name, value] : phase.as_object())
    if (std::ranges::find(command.flags, name, &cli::Flag::name) != command.flags.end())
      known.as_object().set(name, value);
  cli::parse_config(command, known, arguments, what);
  Config config;
  read_settings(arguments, kSide, config);
  return config.precision;
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
  if (const std::string flags = flags_of_phase(precision.typed, false); !flags.empty())
    throw Error(flags + ": needs " + cli::flag_name("precision") + " fp8; it is " +
                std::string(name_of(precision.precision)));
}

void continue_precision(PrecisionConfig& precision, const ckpt::Checkpoint& checkpoint,
                        std::vector<std::string>& notes) {
  const json::Value* phase = recorded_phase(checkpoint);
  if (precision.chosen || phase == nullptr) return;
  PrecisionConfig before = precision_of(*phase, checkpoint.path() + ": /train: phase");
  if (before.precision != Precision::fp8 && before.precision == precision.precision) return;
  const std::string as =
      cli::flag_name("precision") + " " + std::string(name_of(before.precision)) +
      (before.precision == Precision::fp8 ? " " + cli::flag_name("recipe") + " " + before.recipe_text() : "");
  if (const std::string flags = flags_of_phase(precision.typed, true); !flags.empty())
    throw Error(flags + ": needs " + cli::flag_name("precision") + "; without it the run goes on as in " +
                checkpoint.path() + ", with " + as);
  if (const std::string flags = flags_of_phase(precision.given, true); !flags.empty())
    notes.push_back(flags + ": not used: " + cli::flag_name("precision") + " is not given");
  notes.push_back("precision as in " + checkpoint.path() + ": " + as);
  before.emulate = precision.emulate;
  before.attention = precision.attention;
  before.given.clear();
  precision = std::move(before);
}

}  // namespace fp8::settings
