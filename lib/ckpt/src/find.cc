// Finding a checkpoint of a run that saves and prunes at the same time.
#include "fp8/ckpt/find.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/ckpt/run_folder.h"

namespace fp8::ckpt {
namespace {

constexpr int kMostListings = 1000;  // a listing is repeated only after a checkpoint was removed

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

// The checkpoint of step `n` of a run, of an argument RUN@n.
Checkpoint open_number(const std::string& run, std::string_view n, const std::string& argument) {
  const auto step = parse_int64(n);
  if (!step || *step < 0) throw Error(argument + ": expected last, best or a step after @");
  const StepFolder folder{*step, run + "/" + step_name(*step)};
  if (!is_there(folder.path)) {
    std::string others;
    for (const StepFolder& s : list_steps(run)) others = " " + std::to_string(s.step) + others;
    throw Error(argument + ": the run has no checkpoint of this step; it has" + (others.empty() ? " none" : others));
  }
  Checkpoint checkpoint = open_step(folder);
  checkpoint.hold();
  return checkpoint;
}

Checkpoint open_valid(const std::string& run, Which which, const std::string& argument) {
  std::string newest_reason;
  std::vector<std::string> messages;
  auto checkpoint = find_valid(run, which, [&](const std::string& path, const std::string& reason) {
    if (newest_reason.empty()) newest_reason = reason;
    messages.push_back(passed_over(which, path, reason));
  });
  if (checkpoint) {
    checkpoint->set_passed_over(std::move(messages));
    return std::move(*checkpoint);
  }
  const bool damaged = !newest_reason.empty(), best = which == Which::best;
  if (damaged && !best) throw Error(all_damaged(run, newest_reason));
  // Checkpoints without a loss may be valid.
  if (damaged) throw Error(argument + ": no valid checkpoint of the run has an evaluation loss; " + newest_reason);
  if (!best || list_steps(run).empty()) throw Error(argument + ": the run has no checkpoint");
  throw Error(argument + ": no checkpoint of the run has an evaluation loss; a run that evaluates at the steps " +
              "that it saves stores one");
}

std::string without_last_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

std::string passed_over(Which which, const std::string& path, const std::string& reason) {
  return path +
         (which == Which::best ? ": damaged, looking for the best of the others: "
                               : ": damaged, trying an older one: ") +
         reason;
}

json::Value to_json(const Evaluation& e) {
  return json::object({{"loss", e.loss}, {"targets", e.targets}, {"data", e.data}});
}

std::optional<Evaluation> evaluation_of(const json::Value& train) {
  const json::Value* e = train.is_object() ? train.as_object().find("evaluation") : nullptr;
  if (e == nullptr || !e->is_object()) return std::nullopt;
  const json::Object& o = e->as_object();
  return Evaluation{o.get_double_or("loss", NAN, "evaluation"), o.get_int("targets", "evaluation"),
                    o.get_string("data", "evaluation")};
}

std::optional<std::int64_t> best_step(const std::map<std::int64_t, Evaluation>& by_step) {
  std::optional<std::int64_t> best;
  double lowest = 0;
  for (const auto& [step, e] : by_step) {
    const Evaluation& newest = by_step.rbegin()->second;
    const bool comparable = e.data == newest.data && e.targets == newest.targets && std::isfinite(e.loss);
    if (comparable && (!best || e.loss < lowest)) best = step, lowest = e.loss;
  }
  return best;
}

Finder::Finder(std::string run, Which which, Report report)
    : run_(std::move(run)), which_(which), report_(std::move(report)) {}

void Finder::pass_over(const std::string& path, const std::string& reason) {
  if (is_there(path) && damaged_.insert(path).second && report_) report_(path, reason);
}

// Nothing if the checkpoint is damaged or has been removed.
std::optional<Checkpoint> Finder::open(const StepFolder& folder) {
  try {
    Checkpoint checkpoint = open_step(folder);
    checkpoint.hold();
    return checkpoint;
  } catch (const Error& e) {
    pass_over(folder.path, e.what());
    removed_ = removed_ || !damaged_.contains(folder.path);
    return std::nullopt;
  }
}

// The step folder with the lowest evaluation loss; none if there is no such loss.
std::vector<StepFolder> Finder::best_of(const std::vector<StepFolder>& steps) {
  std::map<std::int64_t, Evaluation> by_step;
  for (const StepFolder& s : steps) {
    const std::optional<Checkpoint> checkpoint = open(s);
    try {
      if (const auto e = checkpoint ? evaluation_of(checkpoint->train()) : std::nullopt) by_step.emplace(s.step, *e);
    } catch (const Error& e) {
      pass_over(s.path, s.path + ": /train: " + e.what());
    }
  }
  const auto best = best_step(by_step);
  if (!best) return {};
  return {{*best, run_ + "/" + step_name(*best)}};
}

std::optional<Checkpoint> Finder::next() {
  for (;;) {
    if (++listings_ > kMostListings) throw Error(run_ + ": checkpoints are removed faster than they can be opened");
    removed_ = false;
    std::vector<StepFolder> steps = list_steps(run_);
    if (steps.empty() && listings_ == 1) continue;  // a listing may lack a folder that is renamed at the same time
    std::erase_if(steps, [&](const StepFolder& s) { return damaged_.contains(s.path); });
    if (which_ == Which::best) steps = best_of(steps);
    for (auto s = steps.begin(); s != steps.end() && !removed_; ++s)
      if (auto checkpoint = open(*s)) return checkpoint;
    if (!removed_) return std::nullopt;
  }
}

std::optional<Checkpoint> find_valid(const std::string& run, Which which, const Finder::Report& report) {
  Finder finder(run, which, report);
  while (auto checkpoint = finder.next()) {
    try {
      checkpoint->verify();
      return checkpoint;
    } catch (const Error& e) {
      finder.pass_over(checkpoint->path(), e.what());
    }
  }
  return std::nullopt;
}

std::optional<OfRun> open_of_run(const std::string& argument) {
  if (is_there(argument)) {
    const std::string run = without_last_slashes(argument);
    const bool is_run = is_folder(run) && !is_there(run + "/manifest.json") && !list_steps(run).empty();
    if (!is_run) return std::nullopt;
    return OfRun{open_valid(run, Which::last, argument), true};
  }
  const std::size_t at = argument.rfind('@');
  if (at == std::string::npos) return std::nullopt;
  const std::string run = without_last_slashes(argument.substr(0, at)), which = argument.substr(at + 1);
  if (!is_folder(run)) return std::nullopt;
  if (which == "last") return OfRun{open_valid(run, Which::last, argument), true};
  if (which == "best") return OfRun{open_valid(run, Which::best, argument), true};
  return OfRun{open_number(run, which, argument), false};
}

}  // namespace fp8::ckpt
