// The settings that may differ when a run is resumed, by the table of settings.
#include "fp8/settings/resume.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "fp8/settings/setting.h"

namespace fp8::settings {
namespace {

// A setting as a message names it: its flag, or a description, which has spaces.
std::string spelled(const std::string& key) { return key.find(' ') == std::string::npos ? cli::flag_name(key) : key; }

std::string setting_text(const json::Value& value) {
  return value.is_null() ? "not given" : excerpt(json::dump(value));
}

}  // namespace

json::Value fixed_settings(const RunConfig& config, const ResolvedRun& run) {
  json::Value settings = json::object({{"model", run.model_digest}});
  for (const Setting& s : all_settings()) {
    if (!s.fixed() || (s.of_adapters && !run.lora)) continue;
    settings.as_object().set(s.record_key(), s.record ? s.record(config, run) : s.value(config));
  }
  return settings;
}

void complete_lora_settings(json::Value& one, json::Value& other) {
  for (const Setting& s : all_settings()) {
    if (!s.of_adapters || one.as_object().contains(s.flag.name) == other.as_object().contains(s.flag.name)) continue;
    for (json::Value* settings : {&one, &other})
      if (!settings->as_object().contains(s.flag.name)) settings->as_object().set(s.flag.name, json::Value());
  }
}

void complete_optimizer_settings(json::Value& settings) {
  for (const auto& [key, value] : {std::pair{"optimizer", json::Value("adamw")}, {"muon-scale", json::Value()}})
    if (!settings.as_object().contains(key)) settings.as_object().set(key, value);
}

std::string first_difference(const json::Value& one, const json::Value& other, const std::string& joint) {
  std::string of_absent;  // difference of a setting that is null now: used if there is no other
  for (const auto& [key, value] : other.as_object()) {
    const json::Value* old = one.as_object().find(key);
    if (old == nullptr || *old == value) continue;
    if (key == "model") return "MODEL";
    if (is_digest(key)) return spelled(key);
    std::string text = spelled(key) + " (" + setting_text(*old) + joint + setting_text(value) + ")";
    if (!value.is_null() && !(old->is_null() && value == json::Value(0))) return text;
    if (of_absent.empty()) of_absent = text;
  }
  return of_absent;
}

std::string setting_name(const std::string& name) {
  for (const Setting& s : all_settings())
    if (!s.change.empty() && (name == s.flag.name || name == s.record_key())) return s.change;
  return name == "global-batch" ? "batch" : name;
}

bool is_digest(const std::string& name) {
  return std::ranges::any_of(all_settings(), [&](const Setting& s) { return s.digest && s.flag.name == name; });
}

std::vector<SettingChange> changed_settings(const json::Value& before, const json::Value& now,
                                            const std::vector<std::string>& change, const std::string& path) {
  json::Value fixed = json::object({});
  std::vector<SettingChange> changed;
  for (const auto& [key, value] : now.as_object()) {
    if (std::find(change.begin(), change.end(), setting_name(key)) == change.end()) {
      fixed.as_object().set(key, value);
      continue;
    }
    const json::Value* old = before.as_object().find(key);
    if (old != nullptr && *old != value) changed.push_back({key == kGlobalBatch ? "batch" : key, *old, value});
  }
  const std::string difference = first_difference(before, fixed, ", now ");
  if (difference.empty()) return changed;
  const std::vector<std::string> changeable = changeable_settings();
  std::string remedy;
  bool unchangeable = false;
  for (const auto& [key, value] : fixed.as_object()) {
    const json::Value* old = before.as_object().find(key);
    if (old == nullptr || *old == value) continue;
    const std::string name = setting_name(key);
    if (std::ranges::find(changeable, name) == changeable.end()) unchangeable = true;
    if (("," + remedy + ",").find("," + name + ",") == std::string::npos) remedy += (remedy.empty() ? "" : ",") + name;
  }
  throw Error(path + ": this run was started with another " + difference + "; use another " + cli::flag_name("out") +
              ", or the same settings to resume" +
              (unchangeable ? "" : ", or " + cli::flag_name("change") + " " + remedy + " to go on with the new ones"));
}

void check_same_on_all_ranks(comm::Communicator& host_comm, const json::Value& mine) {
  const std::vector<std::string> all = host_comm.all_gather(json::dump(mine));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const std::string difference =
        first_difference(json::parse(all[0], "rank 0"), json::parse(all[rank], "a rank"), " on rank 0, ");
    throw comm::AgreedError("rank " + host_comm.text_of_rank(static_cast<int>(rank)) + ": started with another " +
                            difference + "; all ranks need the same");
  }
}

void check_same_flags(comm::Communicator& host_comm, json::Value flags, const std::string& model) {
  flags.as_object().set("model", model);
  for (const char* path : {"data", "eval-data", "out"}) flags.as_object().erase(path);
  check_same_on_all_ranks(host_comm, flags);
}

}  // namespace fp8::settings
