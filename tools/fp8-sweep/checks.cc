// Runs are checked in this process, not by starting fp8-step for each: thousands of them take a few seconds.
#include "checks.h"

#include <utility>

#include "fp8/base/error.h"
#include "fp8/launch/phases.h"
#include "fp8/train/command_check.h"

namespace fp8::checks {
namespace {

// A part of the command line of a run, and the line of the sweep that has it.
struct Part {
  std::string place;
  std::vector<std::string> words;
};

std::vector<Part> parts_of(const launch::Sweep& sweep, const launch::SweepJob& job, const launch::SweepRun& run) {
  const auto line = [&](std::uint64_t number) { return sweep.name + ":" + std::to_string(number) + ": "; };
  std::vector<Part> parts = {{"COMMAND: ", job.command}};
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
                     const std::string& error, bool needs_files) {
  train::CommandCheck step;
  std::vector<std::string> words;
  for (const Part& part : parts_of(sweep, job, run)) {
    words.insert(words.end(), part.words.begin(), part.words.end());
    const std::vector<std::string> all = launch::command_line(words, job.folder + "/" + run.name, nullptr, 0);
    try {
      step.check(*launch::step_words(all), needs_files);
    } catch (const Error& e) {
      if (e.what() == error) return part.place;
    }
  }
  return sweep.name + ": ";
}

}  // namespace

void check_runs(const launch::Sweep& sweep, const launch::SweepJob& job, bool needs_files,
                const std::function<void(const std::string&)>& note) {
  if (!launch::step_words(job.command))
    return note("COMMAND: no word of it is fp8-step, so the flags of runs are not checked before they start");
  train::CommandCheck step;
  for (const launch::SweepRun& run : job.runs) {
    const std::vector<std::string> words = command_of(job, run);
    try {
      step.check(*launch::step_words(words), needs_files);
    } catch (const Error& e) {
      throw Error(place_of(sweep, job, run, e.what(), needs_files) + "run " + run.name + ": " + e.what(), e.code());
    }
  }
}

}  // namespace fp8::checks
