// The table of fp8-import.
#include "report.h"

#include <utility>
#include <vector>

#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::import_tool {
namespace {

using foreign::Answer;
using foreign::Class;

constexpr std::size_t kLongestValue = 40;

// Classes in the order of the table, with their headings.
constexpr std::pair<Class, const char*> kGroups[] = {
    {Class::mapped, "mapped"},
    {Class::trainer_default, "defaults of that trainer, made explicit"},
    {Class::differs, "differs: mapped, and results differ in the way that is said"},
    {Class::no_counterpart, "no counterpart"},
    {Class::does_nothing, "does nothing there either"},
};

std::string value_text(const json::Value& value) {
  const std::string text = value.is_string() ? value.as_string() : json::dump(value);
  return terminal_safe(excerpt(text, kLongestValue));
}

std::string group_text(const foreign::Import& import, Class cls) {
  std::vector<std::vector<std::string>> rows = {{"key", "value", "here", "why"}};
  for (const Answer& a : import.answers)
    if (a.cls == cls)
      rows.push_back({terminal_safe(a.key), value_text(a.value), terminal_safe(a.here), terminal_safe(a.why)});
  return rows.size() == 1 ? "" : cli::table(rows);
}

}  // namespace

std::string table_of(const foreign::Import& import, const cli::Style& style) {
  std::string text;
  for (const auto& [cls, heading] : kGroups) {
    const std::string group = group_text(import, cls);
    if (!group.empty()) text += (text.empty() ? "" : "\n") + style.bold(heading) + "\n" + group;
  }
  std::string keys;
  for (const Answer& a : import.answers)
    if (a.cls == Class::no_effect) keys += (keys.empty() ? "" : ", ") + terminal_safe(a.key);
  if (!keys.empty())
    text += (text.empty() ? "" : "\n") + style.bold("no effect on results") + "\n" + cli::wrapped(keys + "\n", 100);
  return text;
}

json::Value record_of(const Answer& a) {
  return json::object({{"type", "key"},
                       {"file", a.file},
                       {"key", a.key},
                       {"value", a.value},
                       {"here", a.here},
                       {"class", foreign::name_of(a.cls)},
                       {"why", a.why}});
}

}  // namespace fp8::import_tool
