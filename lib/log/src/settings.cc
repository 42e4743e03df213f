// Settings of runs from their run records, and their differences.
#include "fp8/log/settings.h"

#include <algorithm>

#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "fp8/json/sizes.h"
#include "fp8/log/run.h"

namespace fp8::log {
namespace {

constexpr std::string_view kModel = "model", kData = "data", kGlobalBatch = "global-batch";
constexpr std::string_view kChatTemplate = "chat template";  // of the data

const json::Object* object_or_null(const json::Object& record, std::string_view key) {
  const json::Value* value = record.find(key);
  return value != nullptr && value->is_object() ? &value->as_object() : nullptr;
}

// The count under `key`; 0 when it is missing or not a positive integer.
std::int64_t count_of(const json::Object* object, std::string_view key) {
  const json::Value* value = object == nullptr ? nullptr : object->find(key);
  return value != nullptr && value->is_int() && value->as_double() > 0 ? value->as_int() : 0;
}

// The ranks of a mesh: the product of the dimensions that divide them, or "world" in records of earlier builds.
std::int64_t ranks_of(const json::Object* mesh) {
  std::int64_t ranks = count_of(mesh, "world");
  if (mesh == nullptr || ranks > 0) return ranks;
  ranks = 1;
  for (const char* dimension : {"dp_replicate", "dp_shard", "pp", "tp"}) ranks *= count_of(mesh, dimension);
  return ranks;
}

std::string text_of(const json::Object* object, std::string_view key) {
  const json::Value* value = object == nullptr ? nullptr : object->find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

std::vector<Change> changes_of(const json::Object& record) {
  std::vector<Change> changes;
  const json::Value* list = record.find("changed");
  if (list == nullptr || !list->is_array()) return changes;
  for (const json::Value& entry : list->as_array()) {
    if (!entry.is_object()) continue;
    const json::Value *old = entry.as_object().find("old"), *now = entry.as_object().find("new");
    if (old != nullptr && now != nullptr) changes.push_back({text_of(&entry.as_object(), "name"), *old, *now});
  }
  return changes;
}

bool same(const json::Value& a, const json::Value& b) {
  return a.is_number() && b.is_number() ? a.as_double() == b.as_double() : a == b;
}

// The value of a setting from a step on.
struct From {
  std::int64_t step = 0;
  const Settings* settings = nullptr;
  const json::Value* value = nullptr;
};

// Whether two values of the setting `name` mean the same.
bool same(const From& a, const From& b, std::string_view name) {
  const bool model = name == kModel;
  if (model || name == kData) {
    const std::string& x = model ? a.settings->model_digest : a.settings->data_digest;
    const std::string& y = model ? b.settings->model_digest : b.settings->data_digest;
    if (!x.empty() && !y.empty()) return x == y;
  }
  return same(*a.value, *b.value);
}

// The values of a setting over a run, one per change; empty when the log lacks it.
std::vector<From> history(const Run& run, std::string_view name) {
  std::vector<From> all;
  for (const Settings& s : run.settings) {
    const json::Value* value = s.values.find(name);
    if (value == nullptr) continue;
    const From now{s.step, &s, value};
    if (all.empty() || !same(all.back(), now, name)) all.push_back(now);
  }
  return all;
}

std::string last_part_of(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return std::string(path.substr(path.find_last_of('/') + 1));
}

// A value as text; the strings of an array are separated by commas.
std::string plain(const json::Value& value) {
  if (value.is_string()) return value.as_string();
  const auto is_string = [](const json::Value& v) { return v.is_string(); };
  if (!value.is_array() || !std::ranges::all_of(value.as_array(), is_string)) return json::dump(value);
  std::string text;
  for (const json::Value& v : value.as_array()) text += (text.empty() ? "" : ",") + v.as_string();
  return text;
}

std::string shown_setting(const From& from, std::string_view name, bool with_digests) {
  constexpr std::size_t kDigits = 8;
  const Settings& s = *from.settings;
  const std::string& digest = name == kModel ? s.model_digest : s.data_digest;
  std::string text = name == kModel          ? s.model_name
                     : from.value->is_null() ? "not set"
                     : with_digests          ? plain(*from.value)
                     : name == kData         ? last_part_of(plain(*from.value))
                                             : plain(*from.value);
  if (text.empty() && name == kModel) return digest.empty() ? "another" : digest.substr(0, kDigits);
  if (with_digests && (name == kModel || name == kData) && !digest.empty())
    text += " (" + digest.substr(0, kDigits) + ")";
  return excerpt(text);
}

std::string shown_setting(const std::vector<From>& values, std::string_view name) {
  std::string text;
  for (const From& v : values) {
    const std::string from = v.step > 0 ? "from " + std::to_string(v.step) + " " : "";
    text += (text.empty() ? "" : ", ") + from + shown_setting(v, name, true);
  }
  return text;
}

bool same(const std::vector<From>& a, const std::vector<From>& b, std::string_view name) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const From& x, const From& y) { return x.step == y.step && same(x, y, name); });
}

bool is_checked(const Run& a, const Run& b, const std::string& name) {
  if (name == "seed") return false;
  if (std::find(kCheckedSettings.begin(), kCheckedSettings.end(), name) != kCheckedSettings.end()) return true;
  const auto lists = [&](const Settings& s) {
    return std::find(s.fixed.begin(), s.fixed.end(), name) != s.fixed.end();
  };
  return std::any_of(a.settings.begin(), a.settings.end(), lists) ||
         std::any_of(b.settings.begin(), b.settings.end(), lists);
}

// All names of settings, in order of appearance.
std::vector<std::string> setting_names(std::span<const Run* const> runs) {
  std::vector<std::string> names;
  for (const Run* run : runs) {
    for (const Settings& s : run->settings) {
      for (const auto& [name, value] : s.values) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
  }
  return names;
}

}  // namespace

std::optional<Settings> settings_of(const json::Object& record) {
  const json::Object* config = object_or_null(record, "config");
  if (config == nullptr) return std::nullopt;
  const json::Object* fixed = object_or_null(record, "settings");
  Settings s;
  const json::Value* model = record.find(kModel);
  if (model != nullptr || !text_of(fixed, kModel).empty()) s.values.set(kModel, model ? *model : json::Value());
  for (const auto& [name, value] : *config) {
    if (name == "out") continue;  // each run has its own
    // Settings of the adapter of --lora are null among the flags, but rslora, which is false.
    const bool given = !value.is_null() && value != json::Value(false);
    const json::Value* resolved = fixed == nullptr || given ? nullptr : fixed->find(name);
    s.values.set(name, resolved == nullptr ? value : *resolved);
  }
  if (const std::string precision = text_of(config, "precision"); !precision.empty() && precision != "fp8")
    s.values.erase("recipe");
  const json::Value* steps = record.find("steps");
  if (steps != nullptr && (!s.values.contains("steps") || s.values.at("steps").is_null()))
    s.values.set("steps", *steps);
  s.experts = count_of(&record, "experts");
  const json::Object* mesh = object_or_null(record, "mesh");
  const std::int64_t ranks = ranks_of(mesh);
  if (ranks > 0) s.mesh = ranks > 1 ? json::sizes_text(*mesh) : "1 rank";
  const std::int64_t batch =
      count_of(config, "batch-size") * std::max<std::int64_t>(1, count_of(config, "grad-accumulation"));
  if (ranks > 0) s.values.set("ranks", ranks);
  if (ranks > 0 && batch > 0) s.values.set(kGlobalBatch, ranks * batch);
  for (const std::string_view name : {"documents", "device", "cpu_isa", "version"}) {
    if (const json::Value* value = record.find(name)) s.values.set(name, *value);
  }
  s.model_name = last_part_of(text_of(&record, "model_path"));
  s.model_digest = text_of(fixed, kModel);
  s.data_digest = text_of(fixed, kData);
  if (fixed != nullptr) {
    for (const auto& [name, value] : *fixed) s.fixed.push_back(name);
    if (const json::Value* form = fixed->find(kChatTemplate)) s.values.set(kChatTemplate, *form);
  }
  s.changed = changes_of(record);
  return s;
}

std::vector<Difference> differences(const Run& a, const Run& b) {
  std::vector<Difference> found;
  const std::array<const Run*, 2> both = {&a, &b};
  for (const std::string& name : setting_names(both)) {
    const std::vector<From> x = history(a, name), y = history(b, name);
    if (x.empty() || y.empty() || same(x, y, name)) continue;
    found.push_back({name, shown_setting(x, name), shown_setting(y, name), is_checked(a, b, name)});
  }
  std::stable_partition(found.begin(), found.end(), [](const Difference& d) { return d.checked; });
  return found;
}

std::optional<std::string> setting_text(const Run& run, std::string_view name) {
  const std::vector<From> values = history(run, name);
  if (values.empty()) return std::nullopt;
  return shown_setting(values, name);
}

std::vector<std::pair<std::int64_t, std::string>> setting_texts(const Run& run, std::string_view name,
                                                                bool with_digests) {
  std::vector<std::pair<std::int64_t, std::string>> texts;
  for (const From& v : history(run, name)) texts.emplace_back(v.step, shown_setting(v, name, with_digests));
  return texts;
}

json::Value setting_value(const Run& run, std::string_view name) {
  const std::vector<From> values = history(run, name);
  if (values.empty()) return {};
  const Settings& s = *values.back().settings;
  return name == kModel && !s.model_name.empty() ? json::Value(s.model_name) : *values.back().value;
}

json::Object setting_values(const Run& run) {
  json::Object values;
  const std::array<const Run*, 1> only = {&run};
  for (const std::string& name : setting_names(only)) values.set(name, setting_value(run, name));
  return values;
}

std::string setting_field(const Settings& settings, std::string_view name) {
  const json::Value* value = settings.values.find(name);
  if (value == nullptr || value->is_null()) return "";
  if (name != kModel) return plain(*value);
  return settings.model_name.empty() ? settings.model_digest : settings.model_name;
}

std::string model_identity(const Run& run) {
  const std::vector<From> values = history(run, kModel);
  if (values.empty()) return "";
  const std::string& digest = values.back().settings->model_digest;
  return digest.empty() ? json::dump(*values.back().value) : digest;
}

std::vector<std::string> differing_settings(std::span<const Run> runs) {
  std::vector<const Run*> all;
  for (const Run& run : runs) all.push_back(&run);
  std::vector<std::string> names = setting_names(all);
  std::erase_if(names, [&](const std::string& name) {
    const std::vector<From> first = history(runs.front(), name);
    return std::all_of(runs.begin(), runs.end(), [&](const Run& run) { return same(first, history(run, name), name); });
  });
  return names;
}

}  // namespace fp8::log
