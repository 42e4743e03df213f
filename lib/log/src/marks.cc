// Marks for restarts, phases and changed settings.
#include "marks.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::log {
namespace {

// Settings that a change of precision implies, or that only say where a start ends.
constexpr std::array<std::string_view, 4> kNotMarked = {"precision", "recipe", "until-step", "version"};

// Settings that only save, log, evaluate or speed up: they are named after the others.
constexpr std::array<std::string_view, 22> kLater = {
    "async-save",       "device",        "dp-replicate",  "dp-shard",
    "eval-batches",     "eval-data",     "eval-every",    "grad-accumulation",
    "batch-size",       "keep",          "log-every",     "milestone-every",
    "paranoid",         "profile",       "recompute",     "reshard-after-forward",
    "sample-every",     "sample-prompt", "sample-tokens", "save-every",
    "update-rms-every", "zero"};

std::string value_text(const json::Value& value) {
  constexpr std::size_t kMost = 20;
  return excerpt(value.is_string() ? value.as_string() : json::dump(value), kMost);
}

bool among(std::span<const std::string_view> names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// The first settings that changed; empty when none did.
std::string changes(const Settings& before, const Settings& after) {
  constexpr std::size_t kMost = 2;
  std::vector<std::string> first, later;
  for (const auto& [name, value] : after.values) {
    const json::Value* old = before.values.find(name);
    if (old == nullptr || *old == value || value.is_object() || among(kNotMarked, name)) continue;
    (among(kLater, name) ? later : first)
        .push_back(excerpt(name) + " " + value_text(*old) + " to " + value_text(value));
  }
  first.insert(first.end(), later.begin(), later.end());
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, first.size()); ++i) text += (i == 0 ? "" : ", ") + first[i];
  return text + (first.size() > kMost ? ", ..." : "");
}

}  // namespace

std::vector<Mark> marks_of(const Run& run, bool by_tokens) {
  std::map<std::int64_t, Mark> marks;  // by the number of the first step
  for (const std::int64_t step : run.restarts) {
    if (!run.steps.empty() && step <= run.steps.back()) marks[step] = {};
  }
  for (std::size_t i = 1; i < run.settings.size(); ++i) {
    const std::string text = changes(run.settings[i - 1], run.settings[i]);
    if (!text.empty()) marks[run.settings[i].step] = {.x = 0, .kind = MarkKind::setting, .text = text};
  }
  for (std::size_t i = 1; i < run.phases.size(); ++i) {
    const Phase& phase = run.phases[i];
    const std::string name = phase.precision + (phase.recipe.empty() ? "" : " " + phase.recipe);
    if (name ==
        run.phases[i - 1].precision + (run.phases[i - 1].recipe.empty() ? "" : " " + run.phases[i - 1].recipe)) {
      continue;
    }
    Mark& mark = marks[run.steps[phase.first]];
    mark.text = name + (mark.text.empty() ? "" : ", " + mark.text);
    mark.kind = MarkKind::phase;
  }
  std::vector<Mark> all;
  for (auto& [step, mark] : marks) {
    const std::size_t at = run.index_of(step);
    if (at >= run.steps.size()) continue;
    mark.x = static_cast<double>(by_tokens ? run.tokens[at] : run.steps[at]);
    all.push_back(std::move(mark));
  }
  return all;
}

}  // namespace fp8::log
