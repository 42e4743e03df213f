// Appends pieces of a log to a run.
#include "collector.h"

#include <algorithm>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/utc.h"
#include "statistics.h"

namespace fp8::log {
namespace {

constexpr std::size_t kMostMetrics = 1000;
constexpr std::size_t kUnwanted = static_cast<std::size_t>(-1);

double number_or_nan(const json::Object& record, std::string_view key) {
  const json::Value* value = record.find(key);
  return value != nullptr && value->is_number() ? measured(value->as_double()) : kNan;
}

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

template <typename Events>
void erase_from(Events& events, std::int64_t step) {
  events.erase(events.lower_bound(step), events.end());
}

// The machines in a run record, each with its ranks.
std::vector<std::pair<std::string, std::string>> hosts_of(const json::Object& record) {
  std::vector<std::pair<std::string, std::string>> hosts;
  const json::Value* list = record.find("hosts");
  if (list == nullptr || !list->is_array()) return hosts;
  for (const json::Value& host : list->as_array())
    if (host.is_object())
      hosts.emplace_back(text_or_empty(host.as_object(), "host"), text_or_empty(host.as_object(), "ranks"));
  return hosts;
}

}  // namespace

Collector::Collector(const std::string& path, std::string file) : file_(std::move(file)) {
  run_.path = path;
  run_.name = run_name(path);
}

void Collector::refuse(std::uint64_t line, const std::string& reason) const {
  throw Error(file_ + ": line " + std::to_string(line) + reason);
}

void Collector::take(const Piece& piece) {
  for (const auto& item : piece.items) {
    if (const Fault* fault = std::get_if<Fault>(&item)) {
      if (damage_) refuse(damage_->line, damage_->reason);
      if (!fault->damaged) refuse(lines_ + fault->line, fault->reason);
      damage_ = *fault;
      damage_->line += lines_;
      continue;
    }
    const Event* record = std::get_if<Event>(&item);
    // A damaged line is ignored when a run record follows: the writer was killed and restarted.
    if (damage_ && (record == nullptr || text_or_empty(record->record, "type") != "run")) {
      refuse(damage_->line, damage_->reason);
    }
    damage_.reset();
    const std::uint64_t line = lines_ + (record != nullptr ? record->line : std::get<StepBlock>(item).line);
    try {
      if (record != nullptr) {
        any_ = event(record->record) || any_;
      } else {
        add(std::get<StepBlock>(item));
        any_ = true;
      }
    } catch (const Error& e) {
      refuse(line, std::string(": ") + e.what());
    }
  }
  lines_ += piece.lines;
}

void Collector::finish() const {
  if (damage_ && !damage_->torn) refuse(damage_->line, damage_->reason);
  if (any_) return;
  throw Error(file_ + ": contains no record of a run" +
              (tensors_ ? ", but statistics of tensors, which --tensors shows" : ""));
}

// Adds a record other than a step; returns whether its type is known.
bool Collector::event(const json::Object& record) {
  const std::string type = text_or_empty(record, "type");
  if (type == "run") {
    start(record);
  } else if (type == "eval") {
    const std::int64_t step = record.contains("step") ? needed_count(record, "step") : 0;
    const double loss = number_or_nan(record, "loss"), seconds = number_or_nan(record, "seconds");
    const json::Value* targets = record.find("tokens");
    const bool counted = targets != nullptr && targets->is_int() && targets->as_double() >= 0;
    run_.evaluations.emplace(step, Evaluation{loss, seconds, parse_utc(text_or_empty(record, "time")).value_or(kNan),
                                              counted ? targets->as_int() : 0});
  } else if (type == "checkpoint") {
    const double seconds = number_or_nan(record, "seconds");
    const double waited = record.contains("wait_s") ? number_or_nan(record, "wait_s") : seconds;
    const std::string path = text_or_empty(record, "path");
    run_.checkpoints.emplace(needed_count(record, "step"),
                             Save{seconds, waited, path.substr(path.find_last_of('/') + 1)});
  } else if (type == "warning") {
    ++run_.warnings;
  } else if (type == "end") {
    run_.finished = true;
    run_.reason = text_or_empty(record, "reason");
  } else {
    tensors_ = tensors_ || type == "operand" || type == "gemm" || type == "experts" || type == "routes";
    return false;
  }
  return true;
}

void Collector::start(const json::Object& record) {
  started_again_ = !run_.steps.empty();
  // The settings are members of the record itself or of its member "config".
  const json::Value* config = record.find("config");
  const bool nested = !record.contains("precision") && config != nullptr && config->is_object();
  const json::Object& settings = nested ? config->as_object() : record;
  const json::Value* steps = settings.find("steps");
  if (steps != nullptr && steps->is_int() && steps->as_double() >= 0) run_.planned_steps = steps->as_int();
  from_run_ = {.first = 0,
               .precision = text_or_empty(settings, "precision"),
               .recipe = text_or_empty(settings, "recipe"),
               .emulated = boolean(settings, "emulated")};
  settings_ = settings_of(record);
  run_.hosts = hosts_of(record);
  if (run_.steps.empty()) note_settings(0);
}

// The settings of the last run record apply from `step` on.
void Collector::note_settings(std::int64_t step) {
  if (!settings_) return;
  if (run_.steps.empty()) run_.settings.clear();
  settings_->step = run_.settings.empty() ? 0 : step;
  const bool changed = run_.settings.empty() || run_.settings.back().values != settings_->values ||
                       run_.settings.back().model_digest != settings_->model_digest ||
                       run_.settings.back().data_digest != settings_->data_digest;
  if (changed) run_.settings.push_back(std::move(*settings_));
  settings_.reset();
}

void Collector::add(const StepBlock& block) {
  const bool repeats = !run_.steps.empty() && block.steps.front() <= run_.steps.back();
  const bool planned = run_.finished && run_.reason == "until-step";  // the end of a phase
  if (repeats || (started_again_ && !planned)) run_.restarts.push_back(block.steps.front());
  if (repeats || started_again_) run_.start = block.steps.front();
  if (repeats) rewind(block.steps.front());
  started_again_ = false;
  run_.finished = false;
  run_.reason.clear();
  note_settings(block.steps.front());
  note_phase(block.setting);
  for (const Field& field : block.fields) {
    const std::size_t at = column(field);
    if (at != kUnwanted) append(run_.columns[at].values, field.values);
  }
  append(run_.steps, block.steps);
  append(run_.tokens, block.tokens);
  for (Column& c : run_.columns) c.values.resize(run_.steps.size(), kNan);
}

// Removes all data from step `number` on.
void Collector::rewind(std::int64_t number) {
  const std::size_t keep = run_.index_of(number);
  run_.steps.resize(keep);
  run_.tokens.resize(keep);
  for (Column& c : run_.columns) c.values.resize(keep);
  while (!run_.phases.empty() && run_.phases.back().first >= keep) run_.phases.pop_back();
  while (run_.settings.size() > 1 && run_.settings.back().step >= number) run_.settings.pop_back();
  erase_from(run_.evaluations, number);
  erase_from(run_.checkpoints, number);
}

void Collector::note_phase(const StepPrecision& setting) {
  Phase phase = from_run_;
  phase.first = run_.steps.size();
  if (setting.has_precision) {
    phase.precision = setting.precision;
    phase.recipe = setting.recipe;
  }
  if (setting.has_emulated) phase.emulated = setting.emulated;
  if (phase.precision != "fp8") phase.recipe.clear();
  const auto same = [&](const Phase& p) {
    return p.precision == phase.precision && p.recipe == phase.recipe && p.emulated == phase.emulated;
  };
  if (run_.phases.empty() || !same(run_.phases.back())) run_.phases.push_back(std::move(phase));
}

// Index of the column of a field; creates the column if it is new.
std::size_t Collector::column(const Field& field) {
  if (std::find(run_.metrics.begin(), run_.metrics.end(), field.name) == run_.metrics.end()) {
    if (run_.metrics.size() >= kMostMetrics) throw Error("more than " + std::to_string(kMostMetrics) + " metrics");
    run_.metrics.push_back(field.name);
  }
  if (!field.wanted) return kUnwanted;
  const auto known =
      std::find_if(run_.columns.begin(), run_.columns.end(), [&](const Column& c) { return c.name == field.name; });
  if (known != run_.columns.end()) return static_cast<std::size_t>(known - run_.columns.begin());
  run_.columns.push_back({.name = field.name, .values = std::vector<double>(run_.steps.size(), kNan)});
  return run_.columns.size() - 1;
}

}  // namespace fp8::log
