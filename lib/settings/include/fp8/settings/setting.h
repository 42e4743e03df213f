/// The table of settings of fp8-step, fp8-eval, fp8-inspect and fp8-plan. A row is a flag, the member of a
/// configuration that it sets, the tools that have it, and what records and resumed runs make of it. Help, completions,
/// config files, records and --change come from this table; tests compare the manual pages with it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fp8/cli/arguments.h"
#include "fp8/cli/command.h"
#include "fp8/settings/resume.h"

namespace fp8::settings {

/// Tools that have a setting, as bits.
enum Tool : unsigned {
  kStep = 1,     ///< fp8-step
  kEval = 2,     ///< fp8-eval
  kInspect = 4,  ///< fp8-inspect
  kSide = 8,     ///< the flags in the values of --bisect and --against of fp8-inspect
  kPlan = 16,    ///< fp8-plan
};

/// Whether a setting may differ when a run is resumed.
enum class Resume : std::uint8_t {
  free,   ///< yes; it is in no record but that of the flags
  phase,  ///< yes; it is in the record of the phase
  named,  ///< if --change names it; it is in the record of the settings
  fixed,  ///< no; it is in the record of the settings
};

/// The value of a setting in a record.
using Record = std::function<json::Value(const Config&, const ResolvedRun&)>;

/// One setting. Functions get the configuration of a tool that has it.
struct Setting {
  cli::Flag flag{};              ///< name, kind, range, default, help
  unsigned tools = 0;            ///< Tool bits
  Resume resume = Resume::free;  ///< whether it may differ when a run is resumed
  std::string change{};          ///< its name in --change; empty if --change does not accept it
  std::string key{};             ///< its name in the record of the settings; empty: the flag's name
  bool needed = false;           ///< whether it must be given
  bool digest = false;           ///< whether a file is compared by its content, so that messages do not show values
  bool of_adapters = false;      ///< whether it is recorded only for a run with adapters

  /// Sets the member from the flag; leaves it as it is if the flag has no value. Empty without a member.
  std::function<void(const cli::Arguments&, Config&)> read{};
  /// The member, as a config file would have it. Empty without a member.
  std::function<json::Value(const Config&)> value{};
  /// The value in records, if it is not value().
  Record record{};
  /// Whether a phase with this precision records it. Null for Resume::phase: with FP8.
  bool (*recorded)(const PrecisionConfig&) = nullptr;
  /// Whether the flag changes anything under a recipe, if it is a flag of FP8; null for all others.
  bool (*acts)(const quant::Recipe&) = nullptr;

  /// Whether it is in the record of the settings.
  bool fixed() const { return resume == Resume::named || resume == Resume::fixed; }
  /// The name in the record of the settings.
  const std::string& record_key() const { return key.empty() ? flag.name : key; }
};

/// All settings, in the order of the help and of records. A name may occur several times, for different tools.
const std::vector<Setting>& all_settings();

/// The flags of a tool.
std::vector<cli::Flag> flags_of(Tool tool);

/// Sets the members of `config`, the configuration of `tool`, from the flags; unless `all`, only precision and device.
/// Flags that a run needs may be missing under --print-config.
/// Throws Error naming a flag.
void read_settings(const cli::Arguments& arguments, Tool tool, Config& config, bool all = true);

}  // namespace fp8::settings
