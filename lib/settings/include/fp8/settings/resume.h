/// The settings of a run that may differ when it is resumed, and the settings on which ranks must agree.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp8/comm/comm.h"
#include "fp8/hf/config.h"
#include "fp8/settings/config.h"

namespace fp8::settings {

/// The name of the global batch among the settings, as messages state it.
inline constexpr const char* kGlobalBatch = "global batch (ranks x --batch-size x --grad-accumulation)";

/// The name of the chat template of the data among the settings, as messages state it.
inline constexpr const char* kChatTemplate = "chat template";

/// The values that records of a run contain besides its flags.
struct ResolvedRun {
  std::int64_t global_batch = 0;          ///< sequences of a step, of all ranks
  std::string model_digest, data_digest;  ///< digests of MODEL and of the data
  std::optional<hf::LoraConfig> lora{};   ///< adapters
  std::string adapter_digest{};           ///< digest of the adapter that the run starts from; empty: none
  json::Value chat_template{};            ///< name or digest of the chat template of the data; null: none
};

/// The settings that may not change when a run is resumed, unless RunConfig::change names them, by name.
/// Settings of adapters are included only for a run that has adapters.
json::Value fixed_settings(const RunConfig& config, const ResolvedRun& run);

/// If only one of two runs has adapters, adds the settings of adapters to the other run, with the value null.
void complete_lora_settings(json::Value& one, json::Value& other);

/// Adds the optimizer, AdamW, to settings of a run that began before there was a choice.
void complete_optimizer_settings(json::Value& settings);

/// The first setting that differs between two objects, as a message names it: "--lr (0.1JOINT0.2)"; digests without
/// values. Empty if none differs. Settings that `one` lacks are not compared.
std::string first_difference(const json::Value& one, const json::Value& other, const std::string& joint);

/// The name in --change of a setting or flag: "batch" for all that determine the global batch, "warmup" for both forms
/// of the warmup, else `name`.
std::string setting_name(const std::string& name);

/// The names that --change accepts: settings that may change if it names them, and steps and grad-accumulation, which
/// may change without it.
std::vector<std::string> changeable_settings();

/// Whether a setting is a file, which is compared by its content, so that messages do not show its value.
bool is_digest(const std::string& name);

/// A setting with another value than the run's checkpoint has.
struct SettingChange {
  std::string name;        ///< name of the flag; "batch" for the global batch
  json::Value old, value;  ///< before and now; digests of data
};

/// The settings of a run that differ from those of its checkpoint, `before`. Throws Error naming the first one that
/// `change` does not name; `path` is the folder of the run.
std::vector<SettingChange> changed_settings(const json::Value& before, const json::Value& now,
                                            const std::vector<std::string>& change, const std::string& path);

/// Throws AgreedError naming the first rank whose settings differ from rank 0's, and the first such setting.
/// Collective.
void check_same_on_all_ranks(comm::Communicator& host_comm, const json::Value& mine);

/// Throws AgreedError unless all ranks were started with the same flags, as cli::resolved() returns them, and the same
/// MODEL. Other paths may differ: the run compares the files by content. Collective.
void check_same_flags(comm::Communicator& host_comm, json::Value flags, const std::string& model);

}  // namespace fp8::settings
