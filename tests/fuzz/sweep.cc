// Sweeps of fp8-sweep, fp8-sweep(5): runs have different names, which are bare names of folders, and command lines.
#include "fp8/launch/sweep.h"

#include <algorithm>
#include <set>

#include "fp8/launch/run_sweep.h"
#include "fuzz.h"

FP8_FUZZ(sweep) {
  using namespace fp8;
  return fuzz::judge([&] {
    const launch::Sweep sweep = launch::parse_sweep(fuzz::text_of(data, size), "input.sweep");
    launch::SweepJob job;
    job.folder = "sweep";
    job.command = {"fp8-step", "model.h5"};
    std::set<std::string> names;
    std::size_t count = std::max<std::size_t>(sweep.sides.size(), 1);
    for (const launch::SweepRun& run : launch::runs_of(sweep)) {
      fuzz::require(names.insert(run.name).second, "runs have different names");
      fuzz::require(run.name.find('/') == std::string::npos && !run.name.starts_with('.') && run.name.size() <= 200,
                    "a name is that of a folder");
      fuzz::require(run.settings.size() == sweep.settings.size(), "a run has a value of each setting");
      const std::vector<std::string> words = launch::command_of(job, run);
      fuzz::require(words.back() == "sweep/" + run.name, "a command ends with the folder of its run");
    }
    for (const launch::SweepSetting& setting : sweep.settings) count *= setting.values.size();
    fuzz::require(names.size() == count, "every combination is a run");
  });
}
