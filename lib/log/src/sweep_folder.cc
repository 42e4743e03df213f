// Names of the runs of a sweep: SIDE_name=value_name=value. Neither a side nor a value has an equals sign in it, and
// the name of a setting has no underscore, so that the parts of a name are known.
#include "fp8/log/sweep_folder.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::log {
namespace {

namespace fs = std::filesystem;

// A run of a sweep.
struct SweptRun {
  std::string path{};
  std::vector<std::pair<std::string, std::string>> parts{};  // name and value; the side first, if there is one
  std::optional<std::int64_t> position{};                    // in the sweep; nothing if sweep.json does not say it
};

bool has_log(const fs::path& folder) {
  std::error_code none;
  const std::uintmax_t bytes = fs::file_size(folder / "log.jsonl", none);
  return !none && bytes > 0;
}

std::vector<std::pair<std::string, std::string>> parts_of(std::string name) {
  std::vector<std::pair<std::string, std::string>> parts;
  for (std::size_t equals = 0; (equals = name.rfind('=')) != std::string::npos;) {
    const std::size_t before = name.rfind('_', equals), begin = before == std::string::npos ? 0 : before + 1;
    parts.emplace(parts.begin(), name.substr(begin, equals - begin), name.substr(equals + 1));
    name.erase(before == std::string::npos ? 0 : before);
  }
  if (!name.empty()) parts.emplace(parts.begin(), kBySide, name);
  return parts;
}

// The position of a run in its sweep; nothing if sweep.json is missing or damaged.
std::optional<std::int64_t> position_of(const fs::path& folder) {
  try {
    const json::Value file = json::parse_file(folder / "sweep.json");
    const json::Value* position = file.is_object() ? file.as_object().find("position") : nullptr;
    if (position != nullptr && position->is_int()) return position->as_int();
  } catch (const Error&) {
    return std::nullopt;
  }
  return std::nullopt;
}

std::vector<SweptRun> runs_in(const std::string& folder) {
  std::vector<SweptRun> runs;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (!has_log(entry.path())) continue;
    SweptRun& run = runs.emplace_back();
    run.path = entry.path().string();
    run.parts = parts_of(entry.path().filename().string());
    run.position = position_of(entry.path());
  }
  return runs;
}

// Orders values: by position in the sweep, then numbers by their value, then texts.
struct Before {
  std::string_view by;
  bool operator()(const SweptRun& x, const SweptRun& y) const {
    const auto key = [&](const SweptRun& run) {
      const auto part = std::ranges::find(run.parts, by, &std::pair<std::string, std::string>::first);
      const std::string value = part == run.parts.end() ? "" : part->second;
      return std::tuple(run.position.value_or(std::numeric_limits<std::int64_t>::max()),
                        parse_double(value).value_or(0), value, run.path);
    };
    return key(x) < key(y);
  }
};

// The names of the parts of runs: all, or those in which runs differ.
std::string names_of_parts(const std::vector<SweptRun>& runs, bool all) {
  std::vector<std::pair<std::string, std::string>> first;
  std::vector<std::string> names;
  for (const SweptRun& run : runs)
    for (const auto& [name, value] : run.parts) {
      const auto known = std::ranges::find(first, name, &std::pair<std::string, std::string>::first);
      const bool fresh = known == first.end();
      const bool wanted = fresh ? all : known->second != value;
      if (fresh) first.emplace_back(name, value);
      if (wanted && std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  std::ranges::sort(names, {}, [](const std::string& name) { return std::pair(name != kBySide, name); });
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list.empty() ? "nothing" : list;
}

// The known positions of the runs of a side, by the rest of their names.
using Positions = std::map<std::string, std::int64_t>;

// Whether the sweep has side a before b, by two runs that differ in the side alone; nothing if there are none.
std::optional<bool> precedes(const Positions& a, const Positions& b) {
  for (const auto& [key, position] : a)
    if (const auto other = b.find(key); other != b.end()) return position < other->second;
  return std::nullopt;
}

// Orders sides as the sweep does, also where runs are missing; `sides` are in the order of their first runs.
void order(std::vector<SweptSide>& sides, const std::map<std::string, Positions>& positions) {
  std::map<std::string, std::size_t> before;  // the number of sides before each
  for (std::size_t i = 0; i < sides.size(); ++i)
    for (std::size_t j = i + 1; j < sides.size(); ++j) {
      const bool first = precedes(positions.at(sides[i].name), positions.at(sides[j].name)).value_or(true);
      ++before[sides[first ? j : i].name];
    }
  std::ranges::stable_sort(sides, {}, [&](const SweptSide& side) { return before[side.name]; });
}

}  // namespace

bool is_sweep_folder(const std::string& path) {
  std::error_code none;
  if (!fs::is_directory(path, none) || fs::exists(fs::path(path) / "log.jsonl", none)) return false;
  const fs::directory_iterator entries(path, none);
  return std::any_of(begin(entries), end(entries), [](const fs::directory_entry& e) { return has_log(e.path()); });
}

SweptSides sides_of_sweep(const std::string& folder, const std::string& by) {
  if (by == "seed") throw Error("--by seed: the seed pairs the runs of two sides, so its values cannot be compared");
  std::vector<SweptRun> runs = runs_in(folder);
  std::ranges::sort(runs, Before{by});
  SweptSides all;
  std::map<std::string, Positions> positions;  // by side
  for (const SweptRun& run : runs) {
    std::string name, key;
    for (const auto& [part, value] : run.parts) {
      const std::string text = part == kBySide ? value : part + "=" + value;
      if (part == by)
        name = text;
      else
        key += (key.empty() ? "" : "_") + text;
    }
    if (name.empty()) {
      all.left_out.push_back(run.path);
      continue;
    }
    auto side = std::ranges::find(all.sides, name, &SweptSide::name);
    if (side == all.sides.end()) side = all.sides.insert(side, {name, {}, {}});
    side->paths.push_back(run.path);
    side->keys.push_back(key);
    Positions& known = positions[name];
    if (run.position) known.emplace(key, *run.position);
  }
  order(all.sides, positions);
  if (all.sides.empty() && by != kBySide)
    throw Error(folder + ": no setting of the sweep is named " + excerpt(by) + "; its settings are " +
                names_of_parts(runs, true));
  if (all.sides.size() < 2)
    throw Error(folder + ": its runs do not differ in " + excerpt(by) + "; they differ in " +
                names_of_parts(runs, false));
  return all;
}

}  // namespace fp8::log
