// Runs are checked by one process of the fp8-step that will run them: thousands take a few seconds.
#include "checks.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/launch/variants.h"

namespace fp8::checks {
namespace {

using Words = std::vector<std::string>;

// The words of a run that follow the command.
Words variant_of(const launch::SweepJob& job, const launch::SweepRun& run, Words flags) {
  flags.insert(flags.end(), {"--out", job.folder + "/" + run.name});
  return flags;
}

// A part of the flags of a run, and the line of the sweep that has it.
struct Part {
  std::string place;
  Words words;
};

std::vector<Part> parts_of(const launch::Sweep& sweep, const launch::SweepRun& run) {
  const auto line = [&](std::uint64_t number) { return sweep.name + ":" + std::to_string(number) + ": "; };
  std::vector<Part> parts = {{"COMMAND: ", {}}};
  auto next = run.flags.begin();
  const auto add = [&](const std::string& place, std::size_t count) {
    const auto end = next + static_cast<std::ptrdiff_t>(count);
    parts.push_back({place, {std::exchange(next, end), end}});
  };
  for (const launch::SweepSide& side : sweep.sides)
    if (side.name == run.side) add(line(side.line) + "side " + side.name + ": ", side.flags.size());
  for (const launch::SweepSetting& setting : sweep.settings)
    add(line(setting.line), *next == "--" + setting.name ? 2 : 1);  // --lr 1e-3, or --margin=-1
  return parts;
}

// Where the error of a run comes from: the first part that has it together with the parts before it.
std::string place_of(const launch::Sweep& sweep, const launch::SweepJob& job, const launch::SweepRun& run,
                     const std::string& reason, launch::Depth depth) {
  const std::vector<Part> parts = parts_of(sweep, run);
  std::vector<Words> variants;
  Words flags;
  for (const Part& part : parts) {
    flags.insert(flags.end(), part.words.begin(), part.words.end());
    variants.push_back(variant_of(job, run, flags));
  }
  const auto found = launch::verdicts_of(job.command, variants, depth);
  for (std::size_t i = 0; found && i < parts.size(); ++i)
    if ((*found)[i].reason == reason) return parts[i].place;
  return sweep.name + ": ";
}

// Whether fp8-step with this flag trains nothing and writes no log.
bool trains_nothing(const std::string& word) {
  constexpr std::array<std::string_view, 6> kFlags = {"--dry-run", "--print-config", "--check-variants",
                                                      "--help",    "--version",      "--completion"};
  const std::string flag = word.substr(0, word.find('='));
  if (std::ranges::find(kFlags, flag) != kFlags.end()) return true;
  const bool letters = flag.starts_with('-') && flag.find_first_not_of("hnqv", 1) == std::string::npos;
  return letters && flag.find_first_of("hn") != std::string::npos;
}

// Throws Error `place: FLAG: reason` if a flag keeps the runs from training: they would all count as finished.
void check_that_runs_train(const launch::Sweep& sweep, const launch::SweepJob& job) {
  const auto named = std::ranges::find_if(job.command.rbegin(), job.command.rend(), [](const std::string& word) {
    return word == "fp8-step" || word.ends_with("/fp8-step");
  });
  if (named == job.command.rend()) return;
  for (const launch::SweepRun& run : job.runs) {
    std::vector<Part> parts = parts_of(sweep, run);
    parts.front().words.assign(named.base(), job.command.end());
    for (const Part& part : parts) {
      const auto flag = std::ranges::find_if(part.words, trains_nothing);
      if (flag == part.words.end()) continue;
      throw Error(part.place + *flag + ": a run with it trains nothing; to check the runs, give fp8-sweep --dry-run");
    }
  }
}

// Throws Error if two runs would write the gradients of --gradients to one file, which the second would refuse.
void check_files_of_gradients(const launch::SweepJob& job, const std::vector<launch::Verdict>& verdicts) {
  std::map<std::string, const launch::SweepRun*> runs;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const std::string& file = verdicts[i].gradients;
    if (file.empty()) continue;
    const auto [other, is_new] = runs.emplace(file, &job.runs[i]);
    if (!is_new)
      throw Error(
          "--gradients " + file + ": runs " + other->second->name + " and " + job.runs[i].name +
          " would write this file; each needs one of its own, as a setting gradients = A, B or a side gives it");
  }
}

}  // namespace

void check_runs(const launch::Sweep& sweep, const launch::SweepJob& job, bool needs_files,
                const std::function<void(const std::string&)>& note) {
  check_that_runs_train(sweep, job);
  const launch::Depth depth = needs_files ? launch::Depth::files : launch::Depth::existing_files;
  std::vector<Words> variants;
  for (const launch::SweepRun& run : job.runs) variants.push_back(variant_of(job, run, run.flags));
  const auto found = launch::verdicts_of(job.command, variants, depth);
  if (!found) return note("COMMAND: no word of it is fp8-step, so the flags of runs are not checked before they start");
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const launch::Verdict& verdict = (*found)[i];
    if (verdict.reason.empty()) continue;
    const launch::SweepRun& run = job.runs[i];
    throw Error(place_of(sweep, job, run, verdict.reason, depth) + "run " + run.name + ": " + verdict.reason,
                verdict.status);
  }
  check_files_of_gradients(job, *found);
}

}  // namespace fp8::checks
