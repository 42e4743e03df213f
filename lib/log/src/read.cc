// From JSON Lines to columns. One pass, a record at a time; only the columns are kept.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/json/json.h"
#include "fp8/log/run.h"

namespace fp8::log {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kLogFile = "log.jsonl";

// The integer under `key`; Error without the place, which the caller knows.
std::int64_t needed_integer(const json::Object& record, std::string_view key) {
  const json::Value* value = record.find(key);
  if (value == nullptr) throw Error("\"" + std::string(key) + "\" is missing");
  if (!value->is_int() || value->as_double() < 0) throw Error("\"" + std::string(key) + "\" is no count");
  return value->as_int();
}

std::int64_t integer_or(const json::Object& record, std::string_view key, std::int64_t fallback) {
  return record.contains(key) ? needed_integer(record, key) : fallback;
}

std::string text_or_empty(const json::Object& record, std::string_view key) {
  const json::Value* value = record.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

std::optional<bool> boolean(const json::Object& record, std::string_view key) {
  const json::Value* value = record.find(key);
  if (value == nullptr || !value->is_bool()) return std::nullopt;
  return value->as_bool();
}

// Builds a Run of records in their order.
class Collector {
 public:
  Collector(Run& run, const Wanted& wanted) : run_(run), wanted_(wanted) {}

  // Takes one record; returns whether it belongs to a run.
  bool take(const json::Value& value) {
    if (!value.is_object()) throw Error("expected an object, found " + std::string(json::type_name(value.type())));
    const json::Object& record = value.as_object();
    const json::Value* type = record.find("type");
    if (type == nullptr || !type->is_string()) return false;
    const std::string& name = type->as_string();
    if (name == "step") {
      step(record);
    } else if (name == "run") {
      start(record);
    } else if (name == "eval") {
      evaluation(record);
    } else if (name == "checkpoint") {
      run_.checkpoints.push_back(needed_integer(record, "step"));
    } else if (name == "warning") {
      ++run_.warnings;
    } else if (name == "end") {
      run_.finished = true;
      run_.reason = text_or_empty(record, "reason");
    } else {
      return false;
    }
    return true;
  }

 private:
  // Where a member of a step record goes.
  struct Place {
    std::string key;
    int column;  // index into run_.columns, or one of those below
  };
  static constexpr int kNowhere = -1;  // no metric
  static constexpr int kUnwanted = -2;

  void start(const json::Object& record) {
    started_again_ = !run_.steps.empty();
    // The settings stand in the record itself, or in its member "config".
    const json::Value* config = record.find("config");
    const bool nested = !record.contains("precision") && config != nullptr && config->is_object();
    const json::Object& settings = nested ? config->as_object() : record;
    const json::Value* steps = settings.find("steps");
    if (steps != nullptr && steps->is_int() && steps->as_double() >= 0) run_.planned_steps = steps->as_int();
    from_run_ = {.first = 0,
                 .precision = text_or_empty(settings, "precision"),
                 .recipe = text_or_empty(settings, "recipe"),
                 .emulated = boolean(settings, "emulated")};
  }

  void evaluation(const json::Object& record) {
    const json::Value* loss = record.find("loss");
    const double value = loss != nullptr && loss->is_number() ? loss->as_double() : kNan;
    run_.evaluations.push_back({.step = integer_or(record, "step", 0), .loss = value});
  }

  void step(const json::Object& record) {
    const std::int64_t number = needed_integer(record, "step"), tokens = integer_or(record, "tokens", -1);
    const bool repeats = !run_.steps.empty() && number <= run_.steps.back();
    if (repeats || started_again_) ++run_.restarts;
    if (repeats) rewind(number);
    started_again_ = false;
    run_.finished = false;
    run_.reason.clear();
    note_phase(record);
    run_.steps.push_back(number);
    run_.tokens.push_back(tokens);
    for (Column& column : run_.columns) column.values.push_back(kNan);
    std::size_t position = 0;
    for (const auto& [key, value] : record) {
      const bool number_like = value.is_number() || value.is_bool();
      if (!number_like && !value.is_null()) continue;
      const int column = place(position++, key, number_like);
      if (column < 0 || !number_like) continue;
      run_.columns[static_cast<std::size_t>(column)].values.back() =
          value.is_bool() ? static_cast<double>(value.as_bool()) : value.as_double();
    }
  }

  // Forgets everything from step `number` on.
  void rewind(std::int64_t number) {
    const auto keep =
        static_cast<std::size_t>(std::lower_bound(run_.steps.begin(), run_.steps.end(), number) - run_.steps.begin());
    run_.steps.resize(keep);
    run_.tokens.resize(keep);
    for (Column& column : run_.columns) column.values.resize(keep);
    std::erase_if(run_.phases, [&](const Phase& p) { return p.first >= keep; });
    std::erase_if(run_.evaluations, [&](const Evaluation& e) { return e.step >= number; });
    std::erase_if(run_.checkpoints, [&](std::int64_t s) { return s >= number; });
  }

  void note_phase(const json::Object& record) {
    Phase phase = from_run_;
    phase.first = run_.steps.size();
    if (record.contains("precision")) {
      phase.precision = text_or_empty(record, "precision");
      phase.recipe = text_or_empty(record, "recipe");
    }
    if (record.contains("emulated")) phase.emulated = boolean(record, "emulated");
    if (phase.precision != "fp8") phase.recipe.clear();
    const auto same = [&](const Phase& p) {
      return p.precision == phase.precision && p.recipe == phase.recipe && p.emulated == phase.emulated;
    };
    if (run_.phases.empty() || !same(run_.phases.back())) run_.phases.push_back(std::move(phase));
  }

  // The column of the member `key`. Records mostly have the same members in the same order, so the answer for the same
  // position of the record before is tried first.
  int place(std::size_t position, const std::string& key, bool has_value) {
    if (position < places_.size() && places_[position].key == key) {
      if (places_[position].column != kNowhere || !has_value) return places_[position].column;
    }
    const int column = find_place(key, has_value);
    if (position >= places_.size()) places_.resize(position + 1, {.key = "", .column = kNowhere});
    places_[position] = {key, column};
    return column;
  }

  int find_place(const std::string& key, bool has_value) {
    if (key == "step" || key == "tokens") return kUnwanted;
    const auto column =
        std::find_if(run_.columns.begin(), run_.columns.end(), [&](const Column& c) { return c.name == key; });
    if (column != run_.columns.end()) return static_cast<int>(column - run_.columns.begin());
    if (std::find(run_.metrics.begin(), run_.metrics.end(), key) != run_.metrics.end()) return kUnwanted;
    if (!has_value) return kNowhere;
    if (run_.metrics.size() >= kMostMetrics) throw Error("more than " + std::to_string(kMostMetrics) + " metrics");
    run_.metrics.push_back(key);
    if (!wanted_.all && std::find(wanted_.metrics.begin(), wanted_.metrics.end(), key) == wanted_.metrics.end()) {
      return kUnwanted;
    }
    run_.columns.push_back({.name = key, .values = std::vector<double>(run_.steps.size(), kNan)});
    return static_cast<int>(run_.columns.size()) - 1;
  }

  static constexpr std::size_t kMostMetrics = 1000;
  Run& run_;
  const Wanted& wanted_;
  Phase from_run_;              // what the run record said
  bool started_again_ = false;  // a run record came after steps
  std::vector<Place> places_;   // by position in the record
};

json::LineReader open_log(const std::string& path, std::string& file) {
  if (path == "-") return {0, file = "standard input", json::TornLine::ignore};
  std::error_code ignored;
  file = path;
  if (std::filesystem::is_directory(path, ignored)) {
    file = (std::filesystem::path(path) / kLogFile).string();
    if (!std::filesystem::exists(file, ignored)) throw Error(path + ": holds no " + std::string(kLogFile));
  }
  return json::LineReader(file, json::TornLine::ignore);
}

bool is_start(const json::Value& value) {
  if (!value.is_object()) return false;
  return text_or_empty(value.as_object(), "type") == "run";
}

// The next record. A damaged line is forgiven when a run record follows: its writer was killed and started again.
std::optional<json::Value> next_record(json::LineReader& reader) {
  try {
    return reader.next();
  } catch (const Error& damaged) {
    std::optional<json::Value> after;
    try {
      after = reader.next();
    } catch (const Error&) {
      throw damaged;
    }
    if (!after || !is_start(*after)) throw damaged;
    return after;
  }
}

}  // namespace

std::string run_name(const std::string& path) {
  if (path == "-") return "stdin";
  std::string text = path;
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  std::filesystem::path p(text);
  if (p.filename() == kLogFile && !p.parent_path().filename().empty()) p = p.parent_path();
  if (p.filename() == "." || p.filename() == "..") {
    std::error_code failed;
    const std::filesystem::path real = std::filesystem::canonical(p, failed);
    if (!failed) p = real;
  }
  std::string name = p.filename().string();
  if (name.ends_with(".jsonl") && name.size() > 6) name.resize(name.size() - 6);
  return name.empty() ? path : name;
}

const std::vector<double>* Run::find(std::string_view metric) const {
  const auto at = std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.name == metric; });
  return at == columns.end() ? nullptr : &at->values;
}

Run read_run(const std::string& path, const Wanted& wanted) {
  Run run;
  run.path = path;
  run.name = run_name(path);
  std::string file;
  json::LineReader reader = open_log(path, file);
  Collector collector(run, wanted);
  bool any = false;
  while (const std::optional<json::Value> value = next_record(reader)) {
    try {
      any = collector.take(*value) || any;
    } catch (const Error& e) {
      throw Error(file + ": line " + std::to_string(reader.line()) + ": " + e.what(), e.code());
    }
  }
  if (!any) throw Error(file + ": holds no record of a run");
  return run;
}

}  // namespace fp8::log
