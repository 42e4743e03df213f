#include "observe.h"

#include <array>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/json/json.h"
#include "fp8/train/flags.h"
#include "records.h"

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
    if (!any) throw Error(flag_name("layers") + ": " + glob + ": matches no linear in FP8");
  };
  if (globs.empty()) add("");
  for (const std::string& glob : globs) add(glob);
  return observed;
}

std::function<std::string(int)> linear_names(const std::vector<model::Parameter>& table) {
  return [&table](int number) { return table[static_cast<std::size_t>(number)].name; };
}

std::optional<std::string> TensorLog::write(std::int64_t step, std::vector<json::Value> records) const {
  std::string lines;
  for (json::Value& record : records) {
    record.as_object().set("step", step);
    lines += json::dump(record) + "\n";
  }
  try {
    File file = File::open_append(path_);
    if (ends_unfinished(path_, file.size())) lines.insert(0, "\n");
    file.write_all(lines);
    file.close();
  } catch (const Error& e) {
    return std::string(e.what()) + "; the statistics of this step are lost";
  }
  return std::nullopt;
}

}  // namespace fp8::train
