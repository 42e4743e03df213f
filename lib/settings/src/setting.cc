// What tools take from the table of settings besides values: flags, and names of settings that may change.
#include "fp8/settings/setting.h"

#include <algorithm>

#include "rows.h"

namespace fp8::settings {

std::vector<std::string> parts_of(const std::vector<std::string>& lists) {
  std::vector<std::string> parts;
  for (const std::string& list : lists) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      parts.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return parts;
}

std::vector<std::string> changeable_settings() {
  return std::ranges::find(all_settings(), "change", [](const Setting& s) { return s.flag.name; })->flag.suggestions;
}

std::vector<cli::Flag> flags_of(Tool tool) {
  std::vector<cli::Flag> flags;
  for (const Setting& s : all_settings()) {
    if ((s.tools & tool) == 0) continue;
    flags.push_back(s.flag);
    if (tool != kStep && (s.flag.group == kData || s.flag.group == kSaving)) flags.back().group = "Data";
  }
  return flags;
}

}  // namespace fp8::settings
