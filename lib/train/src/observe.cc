#include "fp8/train/observe.h"

#include <array>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/cli/command.h"
#include "fp8/json/json.h"
#include "fp8/state/journal.h"

namespace fp8::train {

std::vector<char> observed_linears(const std::vector<model::Parameter>& table, const std::vector<std::string>& globs) {
  std::vector<char> observed(table.size(), 0);
  const auto add = [&](const std::string& glob) {
    bool any = false;
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (!table[i].fp8 || !(glob.empty() || model::filter_matches(glob, table[i].name))) continue;
      observed[i] = 1;
      any = true;
    }
    if (!any) throw Error(cli::flag_name("layers") + ": " + glob + ": matches no linear in FP8");
  };
  if (globs.empty()) add("");
  for (const std::string& glob : globs) add(glob);
  return observed;
}

statistics::CollectorOptions collector_options(const std::vector<model::Parameter>& table,
                                               const std::vector<std::string>& globs, bool groups) {
  statistics::CollectorOptions options{observed_linears(table, globs), std::vector<char>(table.size(), 0), groups};
  for (std::size_t i = 0; i < table.size(); ++i) options.experts[i] = table[i].expert >= 0 ? 1 : 0;
  return options;
}

std::function<std::string(int)> linear_names(const std::vector<model::Parameter>& table) {
  return [&table](int number) { return table[static_cast<std::size_t>(number)].name; };
}

namespace {

// Removes what a failed write left behind `end`, so that a reader finds the statistics of whole steps. Returns a clause
// for the message if that fails too.
std::string remove_after(const std::string& path, std::uint64_t end) {
  try {
    File::open_append(path).truncate(end);
  } catch (const Error& e) {
    return std::string(", and part of them stays in the file: ") + e.what();
  }
  return "";
}

}  // namespace

std::optional<std::string> TensorLog::write(std::int64_t step, std::vector<json::Value> records) const {
  std::string lines;
  for (json::Value& record : records) {
    record.as_object().set("step", step);
    lines += json::dump(record) + "\n";
  }
  if (!held_.in_place()) return std::nullopt;
  std::optional<std::uint64_t> end;  // end of the file before the step
  try {
    File file = File::open_append(path_);
    end = file.size();
    if (state::ends_unfinished(path_, *end)) lines.insert(0, "\n");
    file.write_all(lines);
    file.close();
  } catch (const Error& e) {
    if (!held_.in_place()) return std::nullopt;
    return std::string(e.what()) + "; the statistics of this step are lost" + (end ? remove_after(path_, *end) : "");
  }
  return std::nullopt;
}

}  // namespace fp8::train
