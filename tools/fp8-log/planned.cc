// The table of a run beside its plan.
#include "planned.h"

#include "fp8/base/text.h"

namespace fp8::report {
namespace {

std::string value_of(log::PlanUnit unit, double value) {
  switch (unit) {
    case log::PlanUnit::seconds:
      return format_short(1e3 * value, 4) + " ms";
    case log::PlanUnit::bytes:
      return bytes_text(value);
    case log::PlanUnit::tokens_per_s:
      return format_short(value, 4);
  }
  return {};
}

std::string interval_of(const log::PlannedFigure& f) {
  const std::string low = value_of(f.unit, f.low), high = value_of(f.unit, f.high);
  return low == high ? low : low + " to " + high;
}

// How a value lies to its interval.
std::string place_of(const log::PlannedFigure& f) {
  if (!f.measured) return "-";
  if (*f.inside()) return f.unit == log::PlanUnit::bytes ? "within" : "inside";
  const double end = *f.measured > f.high ? f.high : f.low;
  if (end <= 0) return "not planned";
  return format_short(*f.measured / end, 3) + (*f.measured > f.high ? " x high" : " x low");
}

// The parts of the step and of the memory are indented below what they are parts of.
std::string label_of(const std::string& name) {
  for (const std::string_view parts : {"terms_s.", "memory_bytes."})
    if (name.starts_with(parts)) {
      const std::string part = name.substr(parts.size());
      return part == "total" ? "memory, each rank" : "  " + terminal_safe(part);
    }
  return name == "step_s" ? "step" : "tokens/s";
}

}  // namespace

std::string planned(const log::PlanComparison& c, const Page& page) {
  std::string text = terminal_safe(c.path) + ", " + terminal_safe(c.precision) +
                     (c.recipe.empty() ? "" : " " + terminal_safe(c.recipe)) +
                     (c.machine.empty() ? "" : ", planned on " + terminal_safe(c.machine)) + "\n";
  std::vector<Row> rows{{"", "planned", "measured", ""}};
  for (const log::PlannedFigure& f : c.figures)
    rows.push_back({label_of(f.name), interval_of(f), f.measured ? value_of(f.unit, *f.measured) : "-", place_of(f)});
  text += table(rows, page);
  if (c.data_wait_share)
    text += "waiting for data, which no plan has: " + share_text(c.data_wait_share) + " of the time of steps\n";
  if (!c.profile.empty())
    text += wrapped("the memory has the records of the profiled operations, which no plan has", page) + "\n";
  if (c.profile.empty()) text += "the run has no profile (fp8-step --profile), so its terms are not known\n";
  for (const std::string& d : c.differences) text += wrapped("differs: " + terminal_safe(d), page) + "\n";
  return text;
}

}  // namespace fp8::report
