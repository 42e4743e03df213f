// The runs of a sweep and the names of their folders.
#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/launch/sweep.h"

namespace fp8::launch {
namespace {

constexpr std::size_t kMaxName = 200;  // bytes; file systems allow 255

// Number of runs.
std::size_t count_of(const Sweep& sweep) {
  std::size_t count = std::max<std::size_t>(sweep.sides.size(), 1);
  for (const SweepSetting& setting : sweep.settings) {
    if (count > kMaxSweepRuns) break;
    count *= setting.values.size();  // fits: a file of 1 MiB has fewer values than 2^20
  }
  if (count > kMaxSweepRuns)
    throw Error(sweep.name + ": has more than " + std::to_string(kMaxSweepRuns) + " combinations");
  return count;
}

void add_value(SweepRun& run, const std::string& name, const std::string& value) {
  run.settings.emplace_back(name, value);
  if (value.starts_with('-')) {
    run.flags.push_back("--" + name + "=" + value);
  } else {
    run.flags.insert(run.flags.end(), {"--" + name, value});
  }
  run.name += (run.name.empty() ? "" : "_") + name + "=" + folder_text(value);
}

}  // namespace

std::string folder_text(std::string_view text) {
  constexpr std::string_view kKept = ".+-";
  std::string name;
  for (const char c : text) {
    const bool kept = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      kKept.find(c) != std::string_view::npos;
    name += kept ? c : '_';
  }
  return name;
}

std::vector<SweepRun> runs_of(const Sweep& sweep) {
  const std::size_t count = count_of(sweep), sides = std::max<std::size_t>(sweep.sides.size(), 1);
  std::vector<SweepRun> runs;
  for (std::size_t i = 0; i < count; ++i) {
    SweepRun run;
    run.position = static_cast<std::int64_t>(i);
    if (!sweep.sides.empty()) {
      const SweepSide& side = sweep.sides[i % sides];
      run.name = run.side = side.name;
      run.flags = side.flags;
    }
    std::size_t block = count;  // runs with the same values of the settings so far
    for (const SweepSetting& setting : sweep.settings) {
      const std::size_t outer = block;
      block /= setting.values.size();
      add_value(run, setting.name, setting.values[i % outer / block]);
    }
    if (run.name.size() > kMaxName)
      throw Error(sweep.name + ": the name of a folder is longer than " + std::to_string(kMaxName) +
                  " bytes: " + excerpt(run.name));
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace fp8::launch
