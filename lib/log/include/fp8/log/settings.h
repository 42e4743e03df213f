/// The settings of runs, and in which of them two runs differ. A setting has the name of its flag; besides the flags
/// there are model, global-batch, ranks, device, cpu_isa and version.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::log {

struct Run;

/// A setting that a resumed run changed, as its run record lists it.
struct Change {
  std::string name{};  ///< name of the flag; "batch" for the global batch
  json::Value old{};   ///< before
  json::Value now{};   ///< value from then on

  /// Memberwise.
  bool operator==(const Change&) const = default;
};

/// Settings that apply from a step on.
struct Settings {
  std::int64_t step = 0;             ///< number of the first step with these settings; 0 at the beginning of the run
  json::Object values{};             ///< values by name
  std::string model_name{};          ///< last part of the path of MODEL; empty when the log lacks it
  std::string model_digest{};        ///< digest of MODEL; empty when the log lacks it
  std::string mesh{};                ///< "dp_shard=4 ep=2", or "1 rank"; empty when the log lacks it
  std::int64_t experts = 0;          ///< experts of all layers; 0 without, or when the log lacks it
  std::string data_digest{};         ///< digest of the token file; empty when the log lacks it
  std::vector<std::string> fixed{};  ///< names of values that a resumed run may not change, as the log lists them
  std::vector<Change> changed{};     ///< changes by the start of the run at `step`
};

/// The settings that a gate checks: the number of steps, and settings that a resumed run may not change, except the
/// seed. Logs that list their fixed settings may add names.
inline constexpr std::array<std::string_view, 27> kCheckedSettings = {
    "model",     "data",           "seq-length",  "global-batch", "sampler",      "documents",    "steps",
    "optimizer", "muon-scale",     "lr",          "schedule",     "warmup-steps", "warmup-ratio", "warmup-from",
    "min-lr",    "schedule-steps", "decay-steps", "decay-shape",  "weight-decay", "decay",        "betas",
    "eps",       "clip",           "master",      "moments",      "aux-loss",     "z-loss"};

/// The settings in a run record; nullopt when the record has no object `config`. A flag whose value is null or
/// false has the value in the record's member `settings`, if that has one. Only FP8 has a recipe.
std::optional<Settings> settings_of(const json::Object& record);

/// A setting in which two runs differ.
struct Difference {
  std::string name{};    ///< the setting
  std::string a{};       ///< value in the first run; a value that changed is "x, from STEP y"
  std::string b{};       ///< value in the second run
  bool checked = false;  ///< whether a gate refuses the comparison

  /// Memberwise.
  bool operator==(const Difference&) const = default;
};

/// The settings in which two runs differ, checked ones first, each group in the order of the logs. Empty when either
/// log has no settings. Settings that one of the logs lacks are not compared. Models and data are compared by digest,
/// and where a log has none by the model's configuration and by the path of the data.
std::vector<Difference> differences(const Run& a, const Run& b);

/// The value of a setting, as text; a value that changed is "x, from STEP y". nullopt when the log lacks it.
std::optional<std::string> setting_text(const Run& run, std::string_view name);

/// The values of a setting as text, each with the number of the first step with it; 0 for the first. Models and data
/// are the last parts of their paths, with a digest if `with_digests`. Empty when the log lacks the setting.
std::vector<std::pair<std::int64_t, std::string>> setting_texts(const Run& run, std::string_view name,
                                                                bool with_digests);

/// The last value of a setting, the name of a model; null when the log lacks it.
json::Value setting_value(const Run& run, std::string_view name);

/// The last values of all settings; see setting_value().
json::Object setting_values(const Run& run);

/// The value of a setting among those that apply from a step on, as a field of a table; empty when it is null or
/// missing.
std::string setting_field(const Settings& settings, std::string_view name);

/// What tells the model of a run from others: its digest, else its configuration; empty when the log lacks both.
std::string model_identity(const Run& run);

/// The names of all settings of the runs whose values are not the same in every run, in order of appearance.
std::vector<std::string> differing_settings(std::span<const Run> runs);

}  // namespace fp8::log
