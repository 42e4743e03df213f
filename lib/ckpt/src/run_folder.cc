// The folder of a run: listing, opening, pruning. The name identifies a checkpoint.
#include "fp8/ckpt/run_folder.h"

#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "fp8/base/checked.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/ckpt/checkpoint.h"

namespace fp8::ckpt {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".tmp";

// Names of the folders in `run`, sorted; empty if `run` does not exist.
std::vector<std::string> folders_in(const std::string& run) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(run, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored)) names.push_back(it->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) throw Error(run + ": cannot be read: " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Position position_of(const Checkpoint& checkpoint) {
  const std::string what = checkpoint.path() + ": /train";
  if (!checkpoint.train().is_object()) throw Error(checkpoint.path() + ": has no /train, so it is not a step of a run");
  const json::Object& train = checkpoint.train().as_object();
  const auto counter = [](const json::Object& object, const char* key, const std::string& where) {
    const std::int64_t n = object.get_int(key, where);
    if (n < 0) throw Error(where + ": " + key + " is " + std::to_string(n) + ", which is below 0");
    return n;
  };
  Position c{counter(train, "step", what), counter(train, "updates", what), counter(train, "tokens", what)};
  if (const json::Value* base = train.find("base")) {
    const std::string where = what + ": base";
    if (!base->is_object()) throw Error(where + ": is no object");
    const json::Object& o = base->as_object();
    c.base = {counter(o, "step", where), counter(o, "tokens", where), counter(o, "sample", where)};
  }
  if (c.updates > c.step)
    throw Error(what + ": " + std::to_string(c.updates) + " updates in " + std::to_string(c.step) + " steps");
  const std::int64_t steps = c.step - c.base.step, tokens = c.tokens - c.base.tokens;
  if (steps < 0 || (steps == 0 ? tokens != 0 : tokens <= 0 || tokens % steps != 0))
    throw Error(what + ": " + std::to_string(tokens) + " tokens in " + std::to_string(steps) + " steps of equal size");
  return c;
}

std::string step_name(std::int64_t step) {
  std::string name(32, '\0');
  const int length = std::snprintf(name.data(), name.size(), "step-%08lld", static_cast<long long>(step));
  name.resize(checked_cast<std::size_t>(length));
  return name;
}

std::optional<std::int64_t> parse_step_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  if (!std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
  // Leading zeros belong to the name, not to the number.
  const std::size_t first = std::min(digits.find_first_not_of('0'), digits.empty() ? 0 : digits.size() - 1);
  const auto step = parse_int64(digits.substr(first));
  return step && step_name(*step) == name ? step : std::nullopt;
}

std::vector<StepFolder> list_steps(const std::string& run) {
  std::vector<StepFolder> steps;
  for (const std::string& name : folders_in(run))
    if (const auto step = parse_step_name(name)) steps.push_back({*step, run + "/" + name});
  std::sort(steps.begin(), steps.end(), [](const StepFolder& a, const StepFolder& b) { return a.step > b.step; });
  return steps;
}

Checkpoint open_step(const StepFolder& folder) {
  Checkpoint checkpoint = Checkpoint::open(folder.path);
  // A folder under another step's name is complete, but does not match its name.
  if (const std::int64_t held = position_of(checkpoint).step; held != folder.step)
    throw Error(folder.path + ": /train: step " + std::to_string(held) + " differs from the step in its name");
  return checkpoint;
}

std::string all_damaged(const std::string& run, const std::string& reason) {
  return run + ": every checkpoint in it is damaged; move them away to start again; the newest: " + reason;
}

std::vector<std::string> prune(const std::string& run, std::int64_t keep,
                               const std::function<bool(std::int64_t step)>& is_protected, const PieceRunner& runner,
                               const LockedFolder* held) {
  std::vector<std::string> removed;
  if (keep < 1) return removed;
  std::int64_t kept = 0;
  for (const StepFolder& folder : list_steps(run)) {
    if (held != nullptr) held->check();
    if (is_protected && is_protected(folder.step)) continue;
    if (++kept <= keep) continue;
    const std::string unfinished = folder.path + std::string(kUnfinished);
    remove_tree(unfinished);
    if (rename(folder.path.c_str(), unfinished.c_str()) != 0) throw_errno(folder.path, "cannot be removed", errno);
    remove_tree(unfinished, runner);
    removed.push_back(folder.path);
  }
  return removed;
}

std::vector<std::string> cleanup_tmp(const std::string& run) {
  std::vector<std::string> removed;
  for (const std::string& name : folders_in(run)) {
    if (!name.starts_with(kPrefix) || !name.ends_with(kUnfinished)) continue;
    removed.push_back(run + "/" + name);
    remove_tree(removed.back());
  }
  return removed;
}

json::Value append_provenance(const json::Value& provenance, const std::string& tool, const std::string& version,
                              const std::string& command) {
  json::Array entries = provenance.is_array() ? provenance.as_array() : json::Array{};
  entries.push_back(json::object({{"tool", tool}, {"version", version}, {"command", command}}));
  return entries;
}

}  // namespace fp8::ckpt
